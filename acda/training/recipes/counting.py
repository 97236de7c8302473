"""Crowd counting: ShanghaiTech A and UCF-QNRF (the paper's Table 3).

Start each from the weights of its classifier (`--initial`). `--model crowd_counter_m` trains the larger network, and
`--model crowd_counter_s_conv` the baseline with standard 3×3 convolutions.
"""

from dataclasses import replace

from acda.training.recipe import Counting


def shanghaitech_a_crowd_counter_s() -> Counting:
    """The counter with Ad-ResNet-s, on ShanghaiTech A.

    acda train shanghaitech_a_crowd_counter_s --data DIR --initial RUN/weights.safetensors
    Result: MAE (people) 122.8 (paper: 57.88), RMSE (people) 195.6 (paper: 91.27); 1.5 hours
    (paper/results/counting.json).
    """
    return Counting(
        model="crowd_counter_s",
        epochs=24,
        batch_size=6,
        optimiser="adamw",
        learning_rate=5e-4,
        weight_decay=1e-2,
        freeze_norm_at=0.7,
        norm_momentum=0.02,
        warmup_steps=50,
        test_every=12,
    )


def shanghaitech_a_crowd_counter_s_conv() -> Counting:
    """Its baseline with standard 3×3 convolutions, on ShanghaiTech A.

    acda train shanghaitech_a_crowd_counter_s_conv --data DIR --initial RUN/weights.safetensors
    Result: MAE (people) 127.8 (paper: 67.73), RMSE (people) 200.9 (paper: 110.12); 1.4 hours
    (paper/results/counting.json).
    """
    return replace(shanghaitech_a_crowd_counter_s(), model="crowd_counter_s_conv")


def ucf_qnrf_crowd_counter_s() -> Counting:
    """The counter with Ad-ResNet-s, on UCF-QNRF.

    Not run here. Photos are several times as large as ShanghaiTech's, and so are crops and heads.

    acda train ucf_qnrf_crowd_counter_s --data DIR --initial RUN/weights.safetensors
    """
    return replace(shanghaitech_a_crowd_counter_s(), crop=512, sigma=16.0)


RECIPES = (
    shanghaitech_a_crowd_counter_s,
    shanghaitech_a_crowd_counter_s_conv,
    ucf_qnrf_crowd_counter_s,
)
