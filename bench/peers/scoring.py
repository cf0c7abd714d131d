"""Figures of one cell: divergence of logit rows, and the scores of answers as apps/eval/metrics/ define them."""
import re
import string
import unicodedata

from cpu_torch import torch

import numpy as np


class Divergence:
    """How far logit rows are from the full cache's, [n, vocabulary], given the tokens that came, [n]. All in f64."""

    def __init__(self, full, tokens):
        self.log_p = torch.log_softmax(full.double(), -1)
        self.p = self.log_p.exp()
        self.top = full.argmax(-1)
        self.at = torch.arange(len(tokens)), torch.tensor(tokens)
        self.full_nll = float(-self.log_p[self.at].mean())

    def to(self, rows):
        """kld: sum p (log p - log q) with p the full cache's, nats; exactly 0 for equal rows."""
        log_q = torch.log_softmax(rows.double(), -1)
        kld = (self.p * (self.log_p - log_q)).sum(-1).numpy()
        return {"nll": float(-log_q[self.at].mean()), "full_nll": self.full_nll,
                "kld_mean": float(kld.mean()), "kld_p99": float(np.quantile(kld, 0.99)), "kld_max": float(kld.max()),
                "same_top": float((self.top == rows.argmax(-1)).double().mean())}


# ---- answers ---------------------------------------------------------------------------------------------------------
def _squad_words(text):
    text = "".join(c for c in text.lower() if c not in string.punctuation)
    return [w for w in text.split() if w not in ("a", "an", "the")]


def _holds(text, answer):
    wanted = answer.strip(" \t\n\r\v\f").lower()
    return wanted in text.lower() if wanted else not text.strip()


def contains(prediction, answers):
    return float(any(_holds(prediction, a) for a in answers))


def contains_all(prediction, answers):
    return sum(_holds(prediction, a) for a in answers) / len(answers) if answers else 0.0


def exact(prediction, answers):
    return float(any(_squad_words(a) == _squad_words(prediction) for a in answers))


def _f1(prediction, answer):
    if not prediction or not answer:
        return float(not prediction and not answer)
    left, shared = list(answer), 0
    for word in prediction:
        if word in left:
            left.remove(word)
            shared += 1
    return 2 * shared / (len(prediction) + len(answer))


def f1(prediction, answers):
    return max((_f1(_squad_words(prediction), _squad_words(a)) for a in answers), default=0.0)


def _subsequence(a, b):
    row = [0] * (len(b) + 1)
    for x in a:
        diagonal = 0
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], diagonal + 1 if x == y else max(row[j], row[j - 1])
    return row[-1]


def _distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


def rouge_l(prediction, answers):
    def words(text):
        return re.findall(r"(?:[a-z0-9]|[^\x00-\x7f\s])+", text.lower())

    def score(a, b):
        n = len(a) + len(b)
        return 2 * _subsequence(a, b) / n if n else 1.0

    return max((score(words(prediction), words(a)) for a in answers), default=0.0)


def edit(prediction, answers):
    def score(a, b):
        longest = max(len(a), len(b))
        return 1 - _distance(a, b) / longest if longest else 1.0

    return max((score(prediction.strip(), a.strip()) for a in answers), default=0.0)


METRICS = {f.__name__: f for f in (contains, contains_all, edit, exact, f1, rouge_l)}


def answer_end(text):
    """Where an answer ends that stops at a newline: the first newline behind anything that is no space; or None."""
    start = len(text) - len(text.lstrip(" \t\r\n"))
    at = text.find("\n", start)
    return at if start < len(text) and at >= 0 else None


# ---- tokens ----------------------------------------------------------------------------------------------------------
def byte_alphabet():
    """GPT-2's: printable bytes stand for themselves, the others for the code points from 256 on, in order."""
    plain = [b for b in range(256) if unicodedata.category(chr(b))[0] not in "ZC" and b != 0xAD]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


class Vocabulary:
    """Token ids to text, straight from the GGUF file's vocabulary."""

    def __init__(self, gguf):
        from gguf import GGUFReader
        fields = GGUFReader(gguf).fields
        self.tokens = fields["tokenizer.ggml.tokens"].contents()
        self.is_byte_level = fields["tokenizer.ggml.model"].contents() == "gpt2"
        ends = {fields[k].contents() for k in ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
                if k in fields}
        names = {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<end_of_turn>", "</s>"}
        self.ends = ends | {i for i, token in enumerate(self.tokens) if token in names}
        self.byte_of = byte_alphabet()

    def text(self, ids):
        joined = "".join(self.tokens[i] for i in ids)
        if self.is_byte_level:
            return bytes(self.byte_of[c] for c in joined if c in self.byte_of).decode("utf-8", "replace")
        data = re.sub(r"<0x([0-9A-F]{2})>", lambda m: chr(0xDC00 + int(m[1], 16)), joined).replace("\u2581", " ")
        return data.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
