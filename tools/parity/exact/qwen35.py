"""The hybrid: Gated DeltaNet, token after token as the paper has it (arXiv 2412.06464), and attention with output gates."""
import numpy as np

from model import Model, sigmoid, silu


class Qwen35(Model):
    feed_forward_norm = "post_attention_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.key_heads, self.value_heads = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        self.state_dim = self.key("ssm.state_size")

    def mix(self, x, layer, cache):
        recurrent = f"blk.{layer}.ssm_a" in self.weights
        return (self.delta_net if recurrent else self.attention)(x, layer, cache)

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
        shared = self.shared_heads()
        q, k = q[:, shared] / np.sqrt(dim), k[:, shared]
        beta, alpha = self.beta_and_alpha(x, name)
        beta = sigmoid(beta)
        step = np.log1p(np.exp(alpha + self.weights[f"{name}.ssm_dt.bias"]))
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

    def shared_heads(self):
        """The key head that each value head reads."""
        return np.arange(self.value_heads) % self.key_heads

    def beta_and_alpha(self, x, name):
        return self.linear(x, f"{name}.ssm_beta"), self.linear(x, f"{name}.ssm_alpha")
