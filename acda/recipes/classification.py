"""LeNet on CIFAR, the paper's Table 1: three networks, one schedule. `data` is a folder of `acda train --data`."""

from dataclasses import replace

from acda.tasks.classification import Classification


def cifar10_lenet() -> Classification:
    """LeNet on CIFAR-10.

    acda train cifar10_lenet --data DIR
    """
    return Classification(model="lenet", epochs=30)


def cifar10_lenet_acda() -> Classification:
    """LeNet with both convolutions adaptive, on CIFAR-10.

    acda train cifar10_lenet_acda --data DIR
    """
    return replace(cifar10_lenet(), model="lenet_acda")


def cifar10_lenet_wide() -> Classification:
    """LeNet widened to the multiply-adds of lenet_acda, on CIFAR-10.

    acda train cifar10_lenet_wide --data DIR
    """
    return replace(cifar10_lenet(), model="lenet_wide")


def cifar100_lenet() -> Classification:
    """LeNet on CIFAR-100.

    acda train cifar100_lenet --data DIR
    """
    return cifar10_lenet()


def cifar100_lenet_acda() -> Classification:
    """LeNet with both convolutions adaptive, on CIFAR-100.

    acda train cifar100_lenet_acda --data DIR
    """
    return cifar10_lenet_acda()


def cifar100_lenet_wide() -> Classification:
    """LeNet widened to the multiply-adds of lenet_acda, on CIFAR-100.

    acda train cifar100_lenet_wide --data DIR
    """
    return cifar10_lenet_wide()


RECIPES = (
    cifar10_lenet,
    cifar10_lenet_acda,
    cifar10_lenet_wide,
    cifar100_lenet,
    cifar100_lenet_acda,
    cifar100_lenet_wide,
)
