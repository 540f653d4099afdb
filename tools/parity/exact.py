"""The exact answer: a forward pass in float64 over the dequantised weights of a GGUF file.

    python3 exact.py --steps 16 --top 20 MODEL.gguf ... < prompts.json > answers.jsonl
    python3 exact.py --pool last MODEL.gguf < prompts.json > rows.jsonl

Follows the greedy tokens from each prompt of a JSON list of lists, and prints one line a model and prompt:
{"model", "prompt", "steps": [{"token", "top": [[id, log-probability], ...]}, ...]}. With --pool it prints each prompt's row
instead, a JSON array a line: the normed rows' mean, the first (cls) or the last, or the logits of the ranking head (rank).
Plain on purpose: numpy and the package gguf's own dequantisers, for the dense llama, qwen2 and qwen3, the mixture
of experts qwen3moe, and the hybrid qwen35 (Gated DeltaNet, token after token as the paper has it: arXiv 2412.06464).
"""
import argparse
import json
import sys
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


class Cache:
    """What one sequence carries along, by layer: keys and values (tokens, kv heads, head dim), or the last inputs of the
    convolution (taps - 1, channels) and the state (value heads, value dim, key dim)."""

    def __init__(self, layers):
        self.length, self.keys, self.values = 0, [None] * layers, [None] * layers
        self.inputs, self.states = [None] * layers, [None] * layers

    def append(self, layer, k, v):
        seen = self.keys[layer] is not None
        self.keys[layer] = np.concatenate([self.keys[layer], k]) if seen else k
        self.values[layer] = np.concatenate([self.values[layer], v]) if seen else v
        return self.keys[layer], self.values[layer]


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float64).reshape(t.shape[::-1])
                        for t in reader.tensors}
        fields = {name: field.contents() for name, field in reader.fields.items()}
        self.architecture = fields["general.architecture"]

        def key(name, default=None):
            return fields.get(f"{self.architecture}.{name}", default)

        self.layers, self.heads = key("block_count"), key("attention.head_count")
        self.kv_heads = key("attention.head_count_kv", self.heads)
        self.head_dim = key("attention.key_length", key("embedding_length") // self.heads)
        self.rotated = key("rope.dimension_count", self.head_dim)
        self.eps = key("attention.layer_norm_rms_epsilon")
        self.key_heads, self.value_heads = key("ssm.group_count"), key("ssm.time_step_rank")
        self.state_dim = key("ssm.state_size")
        self.experts_used = key("expert_used_count")
        self.frequencies = float(key("rope.freq_base", 1e4)) ** -(np.arange(0, self.rotated, 2) / self.rotated)
        if "rope_freqs.weight" in self.weights:
            self.frequencies = self.frequencies / self.weights["rope_freqs.weight"]

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.eps) * self.weights[f"{name}.weight"]

    def linear(self, x, name):
        y = x @ self.weights[f"{name}.weight"].T
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else y + bias

    def rotate(self, x, start):
        """Rotary embedding of x: (tokens, heads, head dim), the first token at position `start`."""
        angles = (start + np.arange(len(x)))[:, None, None] * self.frequencies
        turn = np.exp(1j * angles)
        y, head = x.copy(), x[..., :self.rotated]
        if self.architecture == "llama":  # pairs (2i, 2i + 1)
            z = (head[..., 0::2] + 1j * head[..., 1::2]) * turn
            y[..., 0:self.rotated:2], y[..., 1:self.rotated:2] = z.real, z.imag
        else:  # pairs (i, i + half)
            half = self.rotated // 2
            z = (head[..., :half] + 1j * head[..., half:]) * turn
            y[..., :half], y[..., half:self.rotated] = z.real, z.imag
        return y

    def attention(self, x, layer, cache):
        n, name, group = len(x), f"blk.{layer}", self.heads // self.kv_heads
        q = self.linear(x, f"{name}.attn_q").reshape(n, self.heads, -1)
        q, gate = q[..., :self.head_dim], q[..., self.head_dim:]  # no gate but in qwen35
        k = self.linear(x, f"{name}.attn_k").reshape(n, self.kv_heads, self.head_dim)
        v = self.linear(x, f"{name}.attn_v").reshape(n, self.kv_heads, self.head_dim)
        if f"{name}.attn_q_norm.weight" in self.weights:
            q, k = self.norm(q, f"{name}.attn_q_norm"), self.norm(k, f"{name}.attn_k_norm")
        keys, values = cache.append(layer, self.rotate(k, cache.length), v)
        q = self.rotate(q, cache.length).reshape(n, self.kv_heads, group, self.head_dim)
        scores = np.einsum("nhgd,mhd->hgnm", q, keys) / np.sqrt(self.head_dim)
        future = np.arange(len(keys)) > cache.length + np.arange(n)[:, None]
        scores = np.where(future, -np.inf, scores)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = np.einsum("hgnm,mhd->nhgd", scores / scores.sum(axis=-1, keepdims=True), values)
        mixed = mixed.reshape(n, self.heads, self.head_dim)
        if gate.size:
            mixed = mixed * sigmoid(gate)
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")

    def convolve(self, x, layer, cache):
        """Each channel over its own last inputs, then silu. x: (tokens, channels)."""
        kernel = self.weights[f"blk.{layer}.ssm_conv1d.weight"]  # (channels, taps)
        taps = kernel.shape[1]
        if cache.inputs[layer] is None:
            cache.inputs[layer] = np.zeros((taps - 1, x.shape[1]))
        inputs = np.concatenate([cache.inputs[layer], x])
        cache.inputs[layer] = inputs[len(x):]
        return silu(sum(inputs[i:i + len(x)] * kernel[:, i] for i in range(taps)))

    def delta_net(self, x, layer, cache):
        n, name, dim = len(x), f"blk.{layer}", self.state_dim
        mixed = self.convolve(self.linear(x, f"{name}.attn_qkv"), layer, cache)
        q, k, v = np.split(mixed.reshape(n, -1, dim), [self.key_heads, 2 * self.key_heads], axis=1)
        q, k = (t / np.maximum(np.linalg.norm(t, axis=-1, keepdims=True), self.eps) for t in (q, k))
        shared = np.arange(self.value_heads) % self.key_heads
        q, k = q[:, shared] / np.sqrt(dim), k[:, shared]
        beta = sigmoid(self.linear(x, f"{name}.ssm_beta"))
        step = np.log1p(np.exp(self.linear(x, f"{name}.ssm_alpha") + self.weights[f"{name}.ssm_dt.bias"]))
        decay = np.exp(self.weights[f"{name}.ssm_a"] * step)
        state = cache.states[layer]
        if state is None:
            state = np.zeros((self.value_heads, dim, dim))
        out = np.empty_like(v)
        for t in range(n):
            state = state * decay[t][:, None, None]
            delta = beta[t][:, None] * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
            state = state + delta[:, :, None] * k[t][:, None, :]
            out[t] = np.einsum("hvk,hk->hv", state, q[t])
        cache.states[layer] = state
        gate = self.linear(x, f"{name}.attn_gate").reshape(n, self.value_heads, dim)
        return self.linear((self.norm(out, f"{name}.ssm_norm") * silu(gate)).reshape(n, -1), f"{name}.ssm_out")

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return self.linear(silu(self.linear(x, f"{name}.ffn_gate")) * self.linear(x, f"{name}.ffn_up"), f"{name}.ffn_down")
        scores = np.exp(self.linear(x, f"{name}.ffn_gate_inp"))
        scores /= scores.sum(axis=-1, keepdims=True)
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out = np.zeros_like(x)
        for row, (h, score) in enumerate(zip(x, scores)):
            chosen = np.argsort(-score, kind="stable")[:self.experts_used]
            for expert in chosen:
                weight = score[expert] / score[chosen].sum()
                out[row] += weight * (down[expert] @ (silu(gate[expert] @ h) * (up[expert] @ h)))
        return out

    def rows(self, tokens, cache):
        """Appends `tokens`; returns the normed rows after the last layer: (tokens, width)."""
        x = self.weights["token_embd.weight"][tokens]
        for layer in range(self.layers):
            name = f"blk.{layer}"
            mix = self.delta_net if f"{name}.ssm_a" in self.weights else self.attention
            x = x + mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
            dense = f"{name}.ffn_norm.weight" in self.weights
            h = self.norm(x, f"{name}.ffn_norm" if dense else f"{name}.post_attention_norm")
            x = x + self.feed_forward(h, name)
        cache.length += len(tokens)
        return self.norm(x, "output_norm")

    def pooled(self, tokens, way):
        rows = self.rows(tokens, Cache(self.layers))
        if way == "mean":
            return rows.mean(axis=0)
        row = rows[0 if way == "cls" else -1]
        return self.linear(row, "cls.output") if way == "rank" else row

    def log_probs(self, tokens, cache):
        """Appends `tokens`; returns the log-probabilities after each: (tokens, vocabulary)."""
        head = "output" if "output.weight" in self.weights else "token_embd"
        logits = self.linear(self.rows(tokens, cache), head)
        logits -= logits.max(axis=-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))

    def greedy(self, tokens, steps, top):
        cache, out = Cache(self.layers), []
        for _ in range(steps):
            row = self.log_probs(tokens, cache)[-1]
            order = np.argsort(-row, kind="stable")[:top]
            tokens = [int(order[0])]
            out.append({"token": tokens[0], "top": [[int(i), float(row[i])] for i in order]})
        return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--top", type=int, default=20)
    parser.add_argument("--pool", choices=["mean", "cls", "last", "rank"])
    args = parser.parse_args()
    prompts = json.load(sys.stdin)
    for path in args.models:
        model = Model(path)
        for prompt in prompts:
            if args.pool:
                print(json.dumps(model.pooled(prompt, args.pool).tolist()), flush=True)
                continue
            steps = model.greedy(prompt, args.steps, args.top)
            print(json.dumps({"model": Path(path).stem, "prompt": prompt, "steps": steps}), flush=True)


if __name__ == "__main__":
    main()
