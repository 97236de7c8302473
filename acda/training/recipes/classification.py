"""Classification: LeNet on CIFAR (the paper's Table 1), Ad-ResNets on ImageNet (Table 2) and on 20 classes of it."""

from dataclasses import replace

from acda.training.recipe import Classification


def cifar10_lenet() -> Classification:
    """LeNet on CIFAR-10.

    acda train cifar10_lenet --data DIR
    Result: top-1 error 27.73 % (paper: 24.74); 0.15 hours (paper/results/lenet.json).
    """
    return Classification(model="lenet", epochs=30, dataset="CIFAR10")


def cifar10_lenet_acda() -> Classification:
    """LeNet with both convolutions adaptive, on CIFAR-10.

    acda train cifar10_lenet_acda --data DIR
    Result: top-1 error 22.96 % (paper: 16.27); 2.6 hours (paper/results/lenet.json).
    """
    return replace(cifar10_lenet(), model="lenet_acda")


def cifar10_lenet_wide() -> Classification:
    """LeNet widened to the multiply-adds of lenet_acda, on CIFAR-10.

    acda train cifar10_lenet_wide --data DIR
    Result: top-1 error 13.14 %; 2.4 hours (paper/results/lenet.json).
    """
    return replace(cifar10_lenet(), model="lenet_wide")


def cifar100_lenet() -> Classification:
    """LeNet on CIFAR-100.

    acda train cifar100_lenet --data DIR
    Result: top-1 error 62.7 % (paper: 56.60); 0.15 hours (paper/results/lenet.json).
    """
    return replace(cifar10_lenet(), dataset="CIFAR100")


def cifar100_lenet_acda() -> Classification:
    """LeNet with both convolutions adaptive, on CIFAR-100.

    acda train cifar100_lenet_acda --data DIR
    Result: top-1 error 56.44 % (paper: 49.53); 2.5 hours (paper/results/lenet.json).
    """
    return replace(cifar100_lenet(), model="lenet_acda")


def cifar100_lenet_wide() -> Classification:
    """LeNet widened to the multiply-adds of lenet_acda, on CIFAR-100.

    acda train cifar100_lenet_wide --data DIR
    Result: top-1 error 41.47 %; 2.5 hours (paper/results/lenet.json).
    """
    return replace(cifar100_lenet(), model="lenet_wide")


def tinyimagenet20_ad_resnet_s() -> Classification:
    """Ad-ResNet-s on twenty classes of Tiny-ImageNet, 64×64, from scratch.

    acda train tinyimagenet20_ad_resnet_s --data DIR
    Result: top-1 error 42.2 %; 0.63 hours (paper/results/tinyimagenet20.json).
    """
    return Classification(model="ad_resnet_s", epochs=30, batch_size=64, margin=8, weight_decay=1e-3)


def tinyimagenet20_ad_resnet_s_conv() -> Classification:
    """The same network with standard 3×3 convolutions, on twenty classes of Tiny-ImageNet.

    acda train tinyimagenet20_ad_resnet_s_conv --data DIR
    Result: top-1 error 41.4 %; 0.58 hours (paper/results/tinyimagenet20.json).
    """
    return replace(tinyimagenet20_ad_resnet_s(), model="ad_resnet_s_conv")


def imagenet_ad_resnet_s() -> Classification:
    """Ad-ResNet-s on ImageNet at 224×224, the standard schedule of 90 epochs.

    Not run here. `--model ad_resnet_s_conv` trains its baseline with standard 3×3 convolutions.

    acda train imagenet_ad_resnet_s --data DIR --devices 8 --workers 8
    """
    return Classification(
        model="ad_resnet_s",
        epochs=90,
        image_size=224,
        batch_size=32,
        learning_rate=0.1,
        weight_decay=1e-4,
        warmup_steps=5 * 5004,
    )


def imagenet_ad_resnet_m() -> Classification:
    """Ad-ResNet-m on ImageNet, with the schedule of Ad-ResNet-s.

    Not run here.

    acda train imagenet_ad_resnet_m --data DIR --devices 8 --workers 8
    """
    return replace(imagenet_ad_resnet_s(), model="ad_resnet_m")


def imagenet_ad_resnet_l() -> Classification:
    """Ad-ResNet-l on ImageNet, with the schedule of Ad-ResNet-s.

    Not run here.

    acda train imagenet_ad_resnet_l --data DIR --devices 8 --workers 8
    """
    return replace(imagenet_ad_resnet_s(), model="ad_resnet_l")


RECIPES = (
    cifar10_lenet,
    cifar10_lenet_acda,
    cifar10_lenet_wide,
    cifar100_lenet,
    cifar100_lenet_acda,
    cifar100_lenet_wide,
    tinyimagenet20_ad_resnet_s,
    tinyimagenet20_ad_resnet_s_conv,
    imagenet_ad_resnet_s,
    imagenet_ad_resnet_m,
    imagenet_ad_resnet_l,
)
