"""LoRA adapters from the command line: used, looked at, kept with sessions and runs, refused where they do not fit."""
import csv
import json
import os
import random
import struct
import unittest

from kedge_cli import MODEL, KedgeTest

TEXT, F32 = 8, 6  # GGUF's types of values


def gguf(keys, tensors):
    """keys: name -> str or float; tensors: name -> (n_in, n_out, values), f32."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, value in keys.items():
        is_text = isinstance(value, str)
        out += text(key) + struct.pack("<I", TEXT if is_text else F32)
        out += text(value) if is_text else struct.pack("<f", value)
    data = b""
    for name, (n_in, n_out, values) in tensors.items():
        out += text(name) + struct.pack("<IQQIQ", 2, n_in, n_out, 0, len(data))
        data += struct.pack(f"<{n_in * n_out}f", *values)
        data += b"\0" * (-len(data) % 32)
    return out + b"\0" * (-len(out) % 32) + data


KEYS = {"general.architecture": "llama", "general.type": "adapter", "general.name": "made up", "adapter.type": "lora",
        "adapter.lora.alpha": 2.0}


class Lora(KedgeTest):
    def setUp(self):
        super().setUp()
        model = json.loads(self.kedge("inspect", MODEL, "--json").out)
        self.n_layers, self.n_embd = model["n_layers"], model["n_embd"]
        self.n_kv = model["n_kv_heads"] * model["head_dim"]

    def adapter(self, name="lora.gguf", keys=None, size=0.1, **changed):
        """Of rank 2 on every layer's keys; B is `size` large."""
        draw = random.Random(1)
        tensors = {}
        for layer in range(self.n_layers):
            matrix = f"blk.{layer}.attn_k.weight"
            tensors[matrix + ".lora_a"] = (self.n_embd, 2, [draw.gauss(0, 0.1) for _ in range(2 * self.n_embd)])
            tensors[matrix + ".lora_b"] = (2, self.n_kv, [draw.gauss(0, 1) * size for _ in range(2 * self.n_kv)])
        tensors.update(changed)
        return self.path(name, gguf(KEYS | (keys or {}), {k: v for k, v in tensors.items() if v is not None}))

    def answer(self, *args):
        prompt = self.path("prompt.txt", self.sample(3000, 3))
        result, _ = self.run_ok("-f", prompt, "-n", "12", "--temp", "0", "--kv-budget", "50%", *args)
        return result

    def test_it_changes_what_is_said_and_nothing_else(self):
        plain = self.answer()
        lora = self.adapter()
        used = self.answer("--lora", lora)
        self.assertIn("adapter made up (sha256 ", used.err)
        self.assertNotIn("adapter", plain.err)
        self.assertNotEqual(used.out, plain.out)
        self.assertEqual(self.answer("--lora", lora, "--lora-scale", "0").out, plain.out)
        self.assertEqual(self.answer("--lora", self.adapter("nothing.gguf", size=0)).out, plain.out)

    def test_it_is_looked_at(self):
        lora = self.adapter()
        info = json.loads(self.kedge("inspect", lora, "--json").out)
        self.assertEqual((info["type"], info["alpha"], len(info["matrices"])), ("lora", 2, self.n_layers))
        self.assertEqual(info["matrices"][0], {"name": "blk.0.attn_k.weight", "rank": 2, "n_in": self.n_embd,
                                               "n_out": self.n_kv, "type_a": "f32", "type_b": "f32"})
        text = self.kedge("inspect", lora).out
        for words in ("LoRA adapter", "made up", "llama", "rank", f"{self.n_layers} attn_k"):
            self.assertIn(words, text)
        self.assertIn("made up (sha256", self.kedge("inspect", MODEL, "--lora", lora).out)

    def test_measurements_are_of_the_model_with_it(self):
        text = self.path("text.txt", self.sample(6000, 3))
        lora = ["--lora", self.adapter(size=1)]
        out = self.path("run")
        run = ["eval", "kld", "-m", MODEL, "-f", text, "--lengths", "128", "--continue", "16", "--samples", "1",
               "--kv-budget", "50%", "--noise-windows", "0", "--out", out, "--progress", "none"]
        self.assertEqual(self.kedge(*run, *lora).code, 0)
        with open(os.path.join(out, "config.json")) as f:
            self.assertIn("made up", json.load(f)["model"]["adapter"])
        self.assert_error(self.kedge(*run), 2, "model", "made up")
        # libllama with the adapter beside ours: as near as without it.
        beside = run[:run.index("--out")] + ["--reference", "llama.cpp", "--json", "--progress", "none"]
        klds = {}
        for name, args in {"with": lora, "without": []}.items():
            result = self.kedge(*beside, *args, "--out", self.path("beside-" + name))
            self.assertEqual(result.code, 0, result)
            with open(os.path.join(self.path("beside-" + name), "predictions.csv"), newline="") as f:
                klds[name] = [float(row["kld_mean"]) for row in csv.DictReader(f) if row["policy"] == "none"]
        self.assertLess(klds["with"][0], 0.05, klds)
        bench = ["bench", "-m", MODEL, "-p", "0", "-n", "4", "-r", "1", "--no-warmup", "-o", "json", "--progress",
                 "none"]
        rows = json.loads(self.kedge(*bench, *lora, "--vs", "llama.cpp").out)
        self.assertTrue(rows[0]["model_type"].endswith("+ LoRA"), rows[0]["model_type"])

    def test_a_session_goes_on_with_its_adapter_only(self):
        lora = self.adapter()
        session = ["--session", self.path("s.kedge")]
        self.answer("--lora", lora, *session)
        prompt = self.path("prompt.txt", self.sample(3000, 3))
        run = ["run", "-m", MODEL, "-f", prompt, "-n", "2", "--kv-budget", "50%", *session]
        self.assert_error(self.kedge(*run), 2, "adapter of sha256", "no adapter", "--lora FILE")
        self.assert_error(self.kedge(*run, "--lora", lora, "--lora-scale", "0.5"), 2, "scale 1", "scale 0.5")
        self.assert_error(self.kedge(*run, "--lora", self.adapter("other.gguf", size=0.2)), 2, "adapter of sha256")
        more = self.kedge("run", "-m", MODEL, "-p", " And then", "--append", "-n", "2", "--kv-budget", "50%", *session,
                          "--lora", lora)
        self.assertEqual(more.code, 0, more)

    def test_what_does_not_fit_is_refused(self):
        run = ["run", "-m", MODEL, "-p", "A", "-n", "1", "--lora"]
        key_a, key_b = "blk.0.attn_k.weight.lora_a", "blk.0.attn_k.weight.lora_b"
        two = [0.5, 0.25] * self.n_kv
        cases = [
            ({"keys": {"general.architecture": "qwen2"}}, ["general.architecture", "qwen2", "llama"]),
            ({"keys": {"general.type": "model"}}, ["general.type", "model", "adapter"]),
            ({"keys": {"adapter.type": "other"}}, ["adapter.type", "other", "lora"]),
            ({key_b: None}, [key_b, "none"]),
            ({key_b: (2, self.n_kv // 2, two[:self.n_kv])}, [key_b, f"{self.n_kv // 2} rows", str(self.n_kv)]),
            ({key_a: (32, 2, [0.5] * 64)}, [key_a, "32 columns", str(self.n_embd)]),
            ({key_b: (1, self.n_kv, two[:self.n_kv])}, [key_b, "rank 1", "2"]),
            ({key_b: (2, self.n_kv, [float("nan")] * 2 * self.n_kv)}, [key_b, "not finite"]),
            ({"output_norm.weight.lora_a": (4, 1, [1] * 4), "output_norm.weight.lora_b": (1, 4, [1] * 4)},
             ["output_norm.weight", "blk.0.attn_q.weight"]),
            ({"token_embd.weight.lora_a": (4, 1, [1] * 4), "token_embd.weight.lora_b": (1, 4, [1] * 4)},
             ["token_embd.weight", "ffn_down"]),
        ]
        for changed, words in cases:
            with self.subTest(words=words):
                self.assert_error(self.kedge(*run, self.adapter("bad.gguf", **changed)), 3, "bad.gguf", *words)
        self.assert_error(self.kedge(*run, MODEL), 3, "general.type")
        self.assert_error(self.kedge(*run, self.path("none.gguf")), 3, "none.gguf")
        alone = self.kedge("run", "-m", MODEL, "-p", "A", "--lora-scale", "2")
        self.assert_error(alone, 2, "--lora-scale", "--lora FILE")
        self.assert_error(self.kedge(*run, self.adapter(), "--lora-scale", "nan"), 2, "--lora-scale")


if __name__ == "__main__":
    unittest.main()
