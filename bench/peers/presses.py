"""The presses of kvpress that run_kvpress.py can run: name -> how one is made, from what it keeps of a context.

Names are written `kvpress:NAME` in results. A new press is one line here. Where a press has a window, it is there with
three sizes, `NAME-16`, `NAME-32` and `NAME-64`, so that nobody can say that ours met it with a bad one.

Left out, with the reason: qfilter, fastkvzip, kvzap, lukv, duo, dms, restorekv (weights or statistics that were made
for other models), finch (a delimiter in the prompt), think and merging (keep every row), simlayerkv (drops whole
layers' rows by a threshold, not to a budget), chunk, block, perlayer, composed, decoding, prefill_decoding,
key_rerotation (wrappers that change when rows go, not which), cam (while decoding), kvgrad and kvcompose (gradients or
the answer's tokens), observed (needs every attention matrix in memory).
"""
from cpu_torch import kvpress as kv

WINDOWS = (16, 32, 64)


def windowed():
    """name -> maker of each press that observes a window of the last queries."""
    makers = {
        "snapkv": lambda ratio, window: kv.SnapKVPress(ratio, window_size=window, kernel_size=5),
        "pyramidkv": lambda ratio, window: kv.PyramidKVPress(ratio, window_size=window),
        "chunkkv": lambda ratio, window: kv.ChunkKVPress(kv.SnapKVPress(ratio, window_size=window)),
        "adakv": lambda ratio, window: kv.AdaKVPress(kv.SnapKVPress(ratio, window_size=window)),
        "critical": lambda ratio, window: kv.CriticalKVPress(kv.SnapKVPress(ratio, window_size=window)),
        "criticalada": lambda ratio, window: kv.CriticalAdaKVPress(kv.SnapKVPress(ratio, window_size=window)),
        "cur": lambda ratio, window: kv.CURPress(ratio, local_window_size=window),
    }
    return {f"{name}-{window}": lambda ratio, make=make, window=window: make(ratio, window)
            for name, make in makers.items() for window in WINDOWS}


PRESSES = windowed() | {
    "snapkv-7": lambda ratio: kv.SnapKVPress(ratio, window_size=32, kernel_size=7),  # the paper's kernel
    "streaming": lambda ratio: kv.StreamingLLMPress(ratio, n_sink=4),
    "knorm": lambda ratio: kv.KnormPress(ratio),
    "keydiff": lambda ratio: kv.KeyDiffPress(ratio),
    "lagkv-32": lambda ratio: kv.LagKVPress(ratio, lag_size=32),
    "lagkv-64": lambda ratio: kv.LagKVPress(ratio, lag_size=64),
    "lagkv-128": lambda ratio: kv.LagKVPress(ratio),
    "expected": lambda ratio: kv.ExpectedAttentionPress(ratio),
    "adakv-expected": lambda ratio: kv.AdaKVPress(kv.ExpectedAttentionPress(ratio, epsilon=1e-2)),
    "tova": lambda ratio: kv.TOVAPress(ratio),
    "leverage": lambda ratio: kv.LeverageScorePress(ratio),
    "noncausal": lambda ratio: kv.NonCausalAttnPress(ratio),
    "compactor": lambda ratio: kv.CompactorPress(ratio),
    "cap": lambda ratio: kv.CapPress(ratio),
    "entropychunk": lambda ratio: kv.EntropyGatedChunkKVPress(kv.SnapKVPress(ratio)),
    "kvzip": lambda ratio: kv.KVzipPress(ratio),
    "kvzip-plus": lambda ratio: kv.KVzipPress(ratio, kvzip_plus_normalization=True),
    "random": lambda ratio: kv.RandomPress(ratio),
}

# Presses that read the context once more themselves: they are run in kvpress's own way, once a prompt.
RE_READERS = ("KVzipPress",)


def make(name, n_kept, n_context):
    """A press that keeps exactly `n_kept` of `n_context` rows a kv head (on average over the heads for adakv, over
    layers and heads for pyramidkv and kvzip).

    kvpress takes the whole part of n_context * (1 - ratio): half a row is added, so that rounding cannot lose one.
    """
    return PRESSES[name](1 - (n_kept + 0.5) / n_context)


def re_reads(press):
    return type(press).__name__ in RE_READERS


def text(name):
    """The press and its options, as config.json has it."""
    return described(PRESSES[name](0.0))


NO_OPTIONS = {"compression_ratio", "press", "context_length", "prefix_length", "start_idx", "end_idx"}


def described(press):
    options = {k: v for k, v in vars(press).items()
               if k not in NO_OPTIONS and isinstance(v, (bool, int, float, str))}
    inner = f"({described(press.press)})" if hasattr(press, "press") else ""
    return type(press).__name__ + inner + (":" if options else "") + ",".join(f"{k}={v}" for k, v in options.items())
