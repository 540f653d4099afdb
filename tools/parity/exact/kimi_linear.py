"""Kimi Linear and Ling 3.0, as Hugging Face's modeling_kimi_linear.py and modeling_bailing_hybrid.py have them: the delta rule with a decay
for each key dimension, token after token, and in some layers DeepSeek's latent attention."""
import numpy as np

from deepseek2 import DeepSeek2
from model import sigmoid, silu


class KimiLinear(DeepSeek2):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.state_dim = self.key("kda.head_dim")

    def frequencies_of(self, layer):
        return None

    def mix(self, x, layer, cache):
        recurrent = f"blk.{layer}.ssm_a" in self.weights
        return (self.delta_attention if recurrent else self.attention)(x, layer, cache)

    def convolve(self, x, layer, cache):
        kernels = [self.weights[f"blk.{layer}.ssm_conv1d_{part}.weight"] for part in "qkv"]
        kernel = np.concatenate([kernel.reshape(-1, kernel.shape[-1]) for kernel in kernels])  # (channels, taps)
        taps = kernel.shape[1]
        if cache.inputs[layer] is None:
            cache.inputs[layer] = np.zeros((taps - 1, x.shape[1]))
        inputs = np.concatenate([cache.inputs[layer], x])
        cache.inputs[layer] = inputs[len(x):]
        return silu(sum(inputs[i:i + len(x)] * kernel[:, i] for i in range(taps)))

    def widened(self, x, name):
        x = self.linear(x, f"{name}_a")
        return self.linear(x, f"{name}_b") if f"{name}_b.weight" in self.weights else x

    def log_decay(self, x, rate):
        """Of x: (tokens, heads, key dimensions); the file has minus the rate."""
        return rate * np.log1p(np.exp(x))

    def delta_attention(self, x, layer, cache):
        n, name, dim = len(x), f"blk.{layer}", self.state_dim
        made = np.concatenate([self.linear(x, f"{name}.attn_{part}") for part in "qkv"], axis=1)
        q, k, v = np.split(self.convolve(made, layer, cache).reshape(n, -1, dim), 3, axis=1)
        q, k = (t / np.sqrt((t * t).sum(axis=-1, keepdims=True) + 1e-6) for t in (q, k))
        q = q / np.sqrt(dim)
        beta = sigmoid(self.linear(x, f"{name}.ssm_beta"))
        alpha = (self.widened(x, f"{name}.ssm_f") + self.weights[f"{name}.ssm_dt.bias"]).reshape(n, -1, dim)
        decay = np.exp(self.log_decay(alpha, self.weights[f"{name}.ssm_a"].reshape(-1, 1)))
        state = cache.states[layer]
        if state is None:
            state = np.zeros((q.shape[1], dim, dim))
        out = np.empty_like(v)
        for t in range(n):
            state = state * decay[t][:, None, :]
            delta = beta[t][:, None] * (v[t] - np.einsum("hvk,hk->hv", state, k[t]))
            state = state + delta[:, :, None] * k[t][:, None, :]
            out[t] = np.einsum("hvk,hk->hv", state, q[t])
        cache.states[layer] = state
        gate = self.widened(x, f"{name}.ssm_g").reshape(n, -1, dim)
        mixed = self.norm(out, f"{name}.ssm_norm") * sigmoid(gate)
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")


class BailingMoe3(KimiLinear):
    def frequencies_of(self, layer):
        return self.frequencies

    def log_decay(self, x, rate):
        return self.key("kda.gate_lower_bound") * sigmoid(rate * x)

    def gated(self, mixed, x, name):
        return mixed * sigmoid(self.linear(x, f"{name}.attn_gate"))[..., None]
