"""A GGUF model in transformers, read once a prompt and pressed many times.

A press works after the attention of a layer: what it drops changes nothing of the prompt's own computation. So a prompt
is read once, each layer's hidden states are kept, and every press gets its own copy of the full cache, through its own
forward_hook(). `pressed_directly()` does it in kvpress's own way instead, and the caches must be equal (run_kvpress.py
checks).
"""
import time
from dataclasses import dataclass, field
from pathlib import Path

import presses
from cpu_torch import torch, transformers


@dataclass
class Prompt:
    """A prompt that was read; full cache."""
    tokens: list
    n_tokens: int
    logits: torch.Tensor  # f32 [vocabulary], of the last token
    keys: list  # a layer: f32 [1, kv heads, n_tokens, head_dim], after RoPE
    values: list
    hooks: list  # a layer: what its attention was called with
    seconds: float
    scores: dict = field(default_factory=dict)  # of presses that read the prompt again: name -> (scores, ms)


@dataclass
class Held:
    """A cache after a press."""
    cache: object
    n_tokens: int  # the next token's position
    masks: list  # a layer: indices that adakv masks rather than frees, or None
    n_rows: int  # rows held, over layers and kv heads
    n_full_rows: int
    bytes: int  # of the cache's tensors, measured
    press_ms: float
    rows_per_head: list = field(default_factory=list)  # [layer][kv head]


class Reader:
    def __init__(self, gguf, n_threads):
        torch.set_num_threads(n_threads)
        path = Path(gguf)
        # sdpa: presses that want attention weights compute the window's themselves, and adakv refuses eager attention
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32, attn_implementation="sdpa",
            local_files_only=True)
        self.model.eval()
        self.config = self.model.config
        self.attentions = [layer.self_attn for layer in self.model.model.layers]
        for attention in self.attentions:  # as kvpress's context manager does
            attention.rotary_emb = self.model.model.rotary_emb
        give_tokenizer(path)

    def _forward(self, tokens, cache, position, n_logits):
        """Logits of the last `n_logits` tokens, f32 [n_logits, vocabulary].

        Only position_ids tell where the tokens stand: the mask then goes by the rows the cache holds, as it must once
        rows were dropped.
        """
        positions = torch.arange(position, position + len(tokens)).unsqueeze(0)
        handles = self._masks_by_layer(cache, len(tokens))
        try:
            out = self.model(input_ids=torch.tensor([tokens]), past_key_values=cache, position_ids=positions,
                             logits_to_keep=n_logits)
        finally:
            for handle in handles:
                handle.remove()
        return out.logits[0]

    def _masks_by_layer(self, cache, n_tokens):
        """Hooks that give each layer a mask of its own: transformers makes one, as wide as layer 0, but pyramidkv's
        layers hold different numbers of rows. None where one mask does."""
        held = [layer.keys.shape[2] for layer in cache.layers]
        if n_tokens == 1 or len(set(held)) <= 1:
            return []

        def own_mask(module, arguments, kwargs):
            n_held = held[module.layer_idx]
            mask = torch.ones(n_tokens, n_held + n_tokens, dtype=torch.bool).tril(n_held)
            return arguments, kwargs | {"attention_mask": mask[None, None]}

        return [a.register_forward_pre_hook(own_mask, with_kwargs=True) for a in self.attentions]

    def _set_masks(self, masks):
        for attention, mask in zip(self.attentions, masks):
            attention.masked_key_indices = mask

    @torch.inference_mode()
    def read(self, tokens):
        calls = [None] * len(self.attentions)

        def note(module, _, kwargs, output):
            calls[module.layer_idx] = kwargs
            return output

        handles = [a.register_forward_hook(note, with_kwargs=True) for a in self.attentions]
        cache = transformers.DynamicCache()
        self._set_masks([None] * len(self.attentions))
        started = time.perf_counter()
        try:
            logits = self._forward(tokens, cache, 0, 1)[0]
        finally:
            for handle in handles:
                handle.remove()
        return Prompt(tokens=list(tokens), n_tokens=len(tokens), logits=logits, hooks=calls,
                      seconds=time.perf_counter() - started, keys=[layer.keys for layer in cache.layers],
                      values=[layer.values for layer in cache.layers])

    @torch.inference_mode()
    def pressed(self, prompt, press):
        """The prompt's cache under a press; None holds all of it."""
        if press is not None and presses.re_reads(press):
            return self._pressed_by_reading_again(prompt, press)
        cache = self._full_cache(prompt)
        started = time.perf_counter()
        if press is not None:
            press.post_init_from_model(self.model)
            for attention, kwargs in zip(self.attentions, prompt.hooks):
                press.forward_hook(attention, [], kwargs | {"past_key_values": cache}, [None, None])
        return self._held(cache, prompt.n_tokens, 1000 * (time.perf_counter() - started))

    def _full_cache(self, prompt):
        cache = transformers.DynamicCache()
        for i, (keys, values) in enumerate(zip(prompt.keys, prompt.values)):
            cache.update(keys.clone(), values.clone(), i)
        self._set_masks([None] * len(self.attentions))
        return cache

    def _pressed_by_reading_again(self, prompt, press):
        """KVzip reads the prompt itself, once for all ratios: its scores do not depend on them."""
        name = presses.described(press)
        if name in prompt.scores:
            cache = self._full_cache(prompt)
            scores, milliseconds = prompt.scores[name]
            press.score_val = scores.clone()
            press.compress_post(self.model)
            return self._held(cache, prompt.n_tokens, milliseconds)
        compress, noted = press.compress_post, []

        def note_and_compress(model):
            noted.append(press.score_val.clone())
            compress(model)

        press.compress_post = note_and_compress
        started = time.perf_counter()
        held = self.pressed_directly(prompt.tokens, press)
        held.press_ms = 1000 * max(0.0, time.perf_counter() - started - prompt.seconds)
        prompt.scores[name] = noted[0], held.press_ms
        return held

    @torch.inference_mode()
    def pressed_directly(self, tokens, press):
        """As kvpress documents it: `with press(model)` around the prompt."""
        cache = transformers.DynamicCache()
        self._set_masks([None] * len(self.attentions))
        with press(self.model):
            self._forward(tokens, cache, 0, 1)
        return self._held(cache, len(tokens), 0.0)

    def _held(self, cache, n_tokens, press_ms):
        masks = [getattr(a, "masked_key_indices", None) for a in self.attentions]
        rows = []
        for layer, mask in zip(cache.layers, masks):
            n_heads, n_rows = layer.keys.shape[1], layer.keys.shape[2]
            heads = [n_rows] * n_heads
            if mask is not None:
                for head in mask[1].tolist():
                    heads[head] -= 1
            rows.append(heads)
        n_heads = self.config.num_key_value_heads
        return Held(cache=cache, n_tokens=n_tokens, masks=masks, rows_per_head=rows, press_ms=press_ms,
                    n_rows=sum(map(sum, rows)), n_full_rows=n_tokens * n_heads * len(self.attentions),
                    bytes=cache_bytes(cache))

    @torch.inference_mode()
    def score(self, held, tokens):
        """Logits behind each token of a continuation that is fed, f32 [len(tokens), vocabulary]. Uses the cache up."""
        self._set_masks(held.masks)
        return self._forward(tokens, held.cache, held.n_tokens, len(tokens))

    @torch.inference_mode()
    def generate(self, held, logits, asked, n_most, is_end):
        """Greedy tokens behind a prompt and the tokens `asked`, until is_end(answer, next token). Uses the cache up."""
        self._set_masks(held.masks)
        position, answer = held.n_tokens, []
        if asked:
            logits = self._forward(asked, held.cache, position, 1)[0]
            position += len(asked)
        while len(answer) < n_most:
            token = int(logits.argmax())
            if is_end(answer, token):
                break
            answer.append(token)
            if len(answer) < n_most:
                logits = self._forward([token], held.cache, position, 1)[0]
                position += 1
        return answer


def give_tokenizer(gguf):
    """Presses that read the context once more ask for a tokenizer by the model's name: they get the GGUF file's.

    Without its chat template, because the prompts here have none: the press would take their beginning for one.
    """
    from kvpress.presses import kvzip_press

    class FromGguf:
        @staticmethod
        def from_pretrained(*_, **__):
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name,
                                                                   local_files_only=True)
            tokenizer.chat_template = None
            return tokenizer

    kvzip_press.AutoTokenizer = FromGguf


def cache_bytes(cache):
    return sum(t.numel() * t.element_size() for layer in cache.layers for t in (layer.keys, layer.values))
