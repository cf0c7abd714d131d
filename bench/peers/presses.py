"""The presses of kvpress that run_kvpress.py can run: name -> how one is made, from what it keeps of a context.

Names are written `kvpress:NAME` in results. A new press is one line here.
"""
from cpu_torch import kvpress as kv

PRESSES = {
    "snapkv": lambda ratio: kv.SnapKVPress(ratio, window_size=32, kernel_size=5),  # the options of our `snapkv`
    "snapkv-64": lambda ratio: kv.SnapKVPress(ratio),  # kvpress's own: window_size=64, kernel_size=5
    "snapkv-7": lambda ratio: kv.SnapKVPress(ratio, window_size=32, kernel_size=7),  # the paper's kernel
    "streaming": lambda ratio: kv.StreamingLLMPress(ratio, n_sink=4),
    "knorm": lambda ratio: kv.KnormPress(ratio),
    "expected": lambda ratio: kv.ExpectedAttentionPress(ratio),
    "tova": lambda ratio: kv.TOVAPress(ratio),
    "adakv": lambda ratio: kv.AdaKVPress(kv.SnapKVPress(ratio, window_size=32)),
    "critical": lambda ratio: kv.CriticalKVPress(kv.SnapKVPress(ratio, window_size=32)),
    "random": lambda ratio: kv.RandomPress(ratio),
    "keydiff": lambda ratio: kv.KeyDiffPress(ratio),
    "lagkv": lambda ratio: kv.LagKVPress(ratio),
    "chunkkv": lambda ratio: kv.ChunkKVPress(kv.SnapKVPress(ratio, window_size=32), chunk_length=20),
}


def make(name, n_kept, n_context):
    """A press that keeps exactly `n_kept` of `n_context` rows a kv head (on average over a layer's heads for adakv).

    kvpress takes the whole part of n_context * (1 - ratio): half a row is added, so that rounding cannot lose one.
    """
    return PRESSES[name](1 - (n_kept + 0.5) / n_context)


def text(name):
    """The press and its options, as config.json has it."""
    return described(PRESSES[name](0.0))


def described(press):
    options = {k: v for k, v in vars(press).items() if k not in ("compression_ratio", "press")}
    inner = f"({described(press.press)})" if hasattr(press, "press") else ""
    return type(press).__name__ + inner + (":" if options else "") + ",".join(f"{k}={v}" for k, v in options.items())
