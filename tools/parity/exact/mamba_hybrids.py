"""Granite 4's hybrids, Nemotron-H and Falcon-H1: Mamba2, token after token as the paper has it (arXiv 2405.21060, section 7), beside
attention."""
import numpy as np

from granite import GraniteMoe
from model import Model, sigmoid, silu, squared_relu


class MambaHybrid(Model):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.kv_heads = int(np.max(self.kv_heads))  # 0 in layers without attention
        self.scale = self.key("attention.scale", self.scale)

    def convolve(self, x, layer, cache):
        """Each channel over its own last inputs, with a bias, then silu. x: (tokens, channels)."""
        kernel = self.weights[f"blk.{layer}.ssm_conv1d.weight"]  # (channels, taps)
        taps = kernel.shape[1]
        if cache.inputs[layer] is None:
            cache.inputs[layer] = np.zeros((taps - 1, x.shape[1]))
        inputs = np.concatenate([cache.inputs[layer], x])
        cache.inputs[layer] = inputs[len(x):]
        tapped = sum(inputs[i:i + len(x)] * kernel[:, i] for i in range(taps))
        return silu(tapped + self.weights[f"blk.{layer}.ssm_conv1d.bias"])

    def mamba2(self, x, layer, cache):
        n, name = len(x), f"blk.{layer}"
        inner, size = self.key("ssm.inner_size"), self.key("ssm.state_size")
        heads, groups = self.key("ssm.time_step_rank"), self.key("ssm.group_count")
        rows = self.linear(x, f"{name}.ssm_in")
        gate, mixed, step = np.split(rows, [inner, 2 * (inner + groups * size)], axis=1)
        values, write, read = np.split(self.convolve(mixed, layer, cache), [inner, inner + groups * size], axis=1)
        values = values.reshape(n, heads, inner // heads)
        # Each group's vectors for all of its heads.
        write, read = (np.repeat(t.reshape(n, groups, size), heads // groups, axis=1) for t in (write, read))
        step = np.log1p(np.exp(step + self.weights[f"{name}.ssm_dt.bias"]))
        decay = np.exp(step * self.weights[f"{name}.ssm_a"].reshape(heads))
        skip = self.weights[f"{name}.ssm_d"].reshape(heads, 1)
        state = cache.states[layer]
        if state is None:
            state = np.zeros((heads, inner // heads, size))
        out = np.empty_like(values)
        for t in range(n):
            written = np.einsum("hp,hn->hpn", step[t][:, None] * values[t], write[t])
            state = state * decay[t][:, None, None] + written
            out[t] = np.einsum("hpn,hn->hp", state, read[t]) + skip * values[t]
        cache.states[layer] = state
        gated = out.reshape(n, inner) * silu(gate)
        return self.linear(self.norm_groups(gated, f"{name}.ssm_norm", groups), f"{name}.ssm_out")

    def norm_groups(self, x, name, groups):
        grouped = x.reshape(len(x), groups, -1)
        normed = grouped / np.sqrt(np.mean(grouped * grouped, axis=-1, keepdims=True) + self.eps)
        return (normed * self.weights[f"{name}.weight"].reshape(groups, -1)).reshape(x.shape)

    def mix(self, x, layer, cache):
        recurrent = f"blk.{layer}.ssm_a" in self.weights
        return (self.mamba2 if recurrent else self.attention)(x, layer, cache)


class GraniteHybrid(MambaHybrid):
    interleaved = True

    def frequencies_of(self, layer):
        return self.frequencies if self.key("rope.scaling.finetuned", True) else None

    def embed(self, tokens):
        return super().embed(tokens) * self.key("embedding_scale", 1)

    def layer(self, x, layer, cache):
        name, times = f"blk.{layer}", self.key("residual_scale", 1)
        x = x + times * self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache)
        return x + times * self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        return GraniteMoe.feed_forward(self, x, name)

    def logits(self, rows):
        return super().logits(rows) / self.key("logit_scale", 1)


class Mamba2(MambaHybrid):
    """Mamba2 alone: no attention and no feed-forward blocks."""

    def layer(self, x, layer, cache):
        return x + self.mamba2(self.norm(x, f"blk.{layer}.attn_norm"), layer, cache)


class FalconH1(MambaHybrid):
    """Both mixers in each layer, side by side, as Hugging Face's modeling_falcon_h1.py has it; the multipliers are in the weights."""

    def __init__(self, reader, context):
        super().__init__(reader, context)
        for name in [f"blk.{layer}.ffn_norm" for layer in range(self.layers)]:
            self.weights[f"{name}.weight"] = self.weights[name]  # files have it without the ending

    def norm_groups(self, x, name, groups):
        return super().norm_groups(x, name, groups) if f"{name}.weight" in self.weights else x

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        x = x + self.mamba2(normed, layer, cache) + self.attention(normed, layer, cache)
        return x + self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)


class NemotronH(MambaHybrid):
    def frequencies_of(self, layer):
        return None

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        if f"{name}.ffn_up.weight" in self.weights:
            return x + self.linear(squared_relu(self.linear(normed, f"{name}.ffn_up")), f"{name}.ffn_down")
        return x + self.mix(normed, layer, cache)


class NemotronHMoe(NemotronH):
    """Experts without gates, which a router of sigmoids chooses with a bias that does not weigh; they may read and make narrower rows
    than it does. One expert takes all rows."""

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().layer(x, layer, cache)
        norm = "attn_norm"
        if layer >= self.layers:  # the one that drafts
            x, norm = x + self.attention(self.norm(x, f"{name}.attn_norm"), layer, cache), "post_attention_norm"
        normed = self.norm(x, f"{name}.{norm}")
        shared = self.linear(squared_relu(self.linear(normed, f"{name}.ffn_up_shexp")), f"{name}.ffn_down_shexp")
        return x + self.chosen(normed, name) + shared

    def chosen(self, x, name):
        scores, bias = sigmoid(self.linear(x, f"{name}.ffn_gate_inp")), self.weights[f"{name}.exp_probs_b.bias"]
        up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("up", "down"))
        latent = f"{name}.ffn_latent_down.weight" in self.weights
        narrow = self.linear(x, f"{name}.ffn_latent_down") if latent else x
        out = np.zeros_like(narrow)
        for row, (h, score) in enumerate(zip(narrow, scores)):
            chosen = np.argsort(-(score + bias), kind="stable")[:self.key("expert_used_count")]
            weights = score[chosen] / (score[chosen].sum() if self.key("expert_weights_norm", False) else 1)
            for expert, weight in zip(chosen, weights * (self.key("expert_weights_scale", 0) or 1)):
                out[row] += weight * (down[expert] @ squared_relu(up[expert] @ h))
        return self.linear(out, f"{name}.ffn_latent_up") if latent else out
