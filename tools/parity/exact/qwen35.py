"""The hybrid: Gated DeltaNet, token after token as the paper has it (arXiv 2412.06464), and attention with output gates."""
import numpy as np

from model import Cache, Model, sigmoid, silu


class Qwen35(Model):
    feed_forward_norm = "post_attention_norm"

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.key_heads, self.value_heads = self.key("ssm.group_count"), self.key("ssm.time_step_rank")
        self.state_dim = self.key("ssm.state_size")
        self.layers -= self.key("nextn_predict_layers", 0)

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

    def drafts(self, tokens, steps, top):
        """What the layer behind the others takes for likeliest after the tokens, then after its own choice, and so on: it sees each
        token beside the row before it, and of a draft beside its own last row; the first token has zeros before it. "DeepSeek-V3
        Technical Report" (arXiv 2412.19437), section 2.2."""
        layer, name = self.layers, f"blk.{self.layers}"
        cache = Cache(layer + 1)
        before = self.rows(tokens[:-1], Cache(layer)) if len(tokens) > 1 else np.zeros((0, self.key("embedding_length")))
        before = np.concatenate([np.zeros((1, before.shape[1])), before])
        own = lambda tensor, other: tensor if f"{tensor}.weight" in self.weights else other
        embedding = self.weights[f"{own(f'{name}.nextn.embed_tokens', 'token_embd')}.weight"]
        head = "output" if "output.weight" in self.weights else "token_embd"
        out = []
        for _ in range(steps):
            both = [self.norm(embedding[tokens], f"{name}.nextn.enorm"), self.norm(before, f"{name}.nextn.hnorm")]
            x = self.layer(self.linear(np.concatenate(both, axis=1), f"{name}.nextn.eh_proj"), layer, cache)
            cache.length += len(tokens)
            before = self.norm(x[-1:], own(f"{name}.nextn.shared_head_norm", self.output_norm))
            logits = self.linear(before, own(f"{name}.nextn.shared_head_head", head))[0]
            logits = logits - logits.max()
            row = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-row, kind="stable")[:top]
            tokens = [int(order[0])]
            out.append({"token": tokens[0], "top": [[int(i), float(row[i])] for i in order]})
        return out
