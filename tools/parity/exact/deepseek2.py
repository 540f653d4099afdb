"""DeepSeek V2 and V3, as Hugging Face's modeling_deepseek_v3.py has them: keys and values of every head are made of one latent row. Where
attention rounds as on the CPU, queries are taken to that row instead, since it is what is rounded."""
import numpy as np

from model import Model, sigmoid, softmax
from qwen3moe import mixture
from sigmoid_experts import BailingMoe2
from yarn import yarn


class DeepSeek2(BailingMoe2):
    interleaved = True

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.rank = self.key("attention.kv_lora_rank")
        self.key_dim, self.value_dim = self.key("attention.key_length_mla"), self.key("attention.value_length_mla")
        self.scale = 1 / np.sqrt(self.key_dim)
        if self.key("rope.scaling.type") == "yarn":
            yarn(self)
            self.magnitude = 1.0
            factor, multiplier = (float(self.key(f"rope.scaling.{name}")) for name in ("factor", "yarn_log_multiplier"))
            self.scale *= (1 + multiplier * np.log(factor)) ** 2  # the key has a tenth of mscale_all_dim

    def temperature(self, positions, layer):
        beta, length = float(self.key("attention.temperature_scale", 0.0)), self.key("attention.temperature_length", 1)
        return 1 + beta * np.log(1 + positions // length)

    def queries(self, x, name):
        if f"{name}.attn_q.weight" in self.weights:
            q = self.linear(x, f"{name}.attn_q")
        else:
            q = self.linear(self.latent_queries(x, name), f"{name}.attn_q_b")
        return q.reshape(len(x), self.heads, self.key_dim)

    def latent_queries(self, x, name):
        return self.norm(self.linear(x, f"{name}.attn_q_a"), f"{name}.attn_q_a_norm")

    def hidden(self, x, layer, cache, seen):
        """The tokens that each row does not see: (tokens, seen)."""
        return np.arange(seen) > cache.length + np.arange(len(x))[:, None]

    def attention(self, x, layer, cache):
        n, name, turned = len(x), f"blk.{layer}", self.rotated
        q = self.queries(x, name)
        plain, placed = q[..., :-turned], self.rotate(q[..., -turned:], cache.length, layer)
        grown = self.temperature(np.arange(cache.length, cache.length + n), layer)[:, None, None]
        plain, placed = plain * grown, placed * grown
        made = self.linear(x, f"{name}.attn_kv_a_mqa")[:, None]
        latent = self.norm(made[..., :self.rank], f"{name}.attn_kv_a_norm")
        place = self.rotate(made[..., self.rank:], cache.length, layer)
        keys, values = cache.append(layer, np.concatenate([place, latent], axis=-1),
                                    np.concatenate([np.zeros_like(place), latent], axis=-1))
        hidden = self.hidden(x, layer, cache, len(keys))
        to_keys, to_values = (self.weights[f"{name}.attn_{part}_b.weight"] for part in "kv")
        if cache.rounds:
            asked = np.concatenate([placed, np.einsum("nhd,hrd->nhr", plain, to_keys)], axis=-1)
            asked = cache.queries(asked[:, None])
            scores = np.einsum("nkhd,mkd->khnm", asked, keys) * self.scale
            weights = cache.weights(layer, softmax(np.where(hidden, -np.inf, scores)))
            read = np.einsum("khnm,mkd->nhd", weights, values)[..., turned:]
            mixed = np.einsum("nhr,hvr->nhv", read, to_values)
        else:
            k = np.einsum("mr,hrd->mhd", keys[:, 0, turned:], to_keys)
            v = np.einsum("mr,hvr->mhv", values[:, 0, turned:], to_values)
            scores = np.einsum("nhd,mhd->hnm", plain, k) + np.einsum("nhd,md->hnm", placed, keys[:, 0, :turned])
            mixed = np.einsum("hnm,mhv->nhv", softmax(np.where(hidden, -np.inf, scores * self.scale)), v)
        return self.linear(self.gated(mixed, x, name).reshape(n, -1), f"{name}.attn_output")

    def gated(self, mixed, x, name):
        """The attention's output: (tokens, heads, value dim)."""
        return mixed

    def feed_forward(self, x, name, suffix=""):
        if suffix or f"{name}.ffn_gate_inp.weight" not in self.weights:
            return Model.feed_forward(self, x, name, suffix)
        logits = self.linear(x, f"{name}.ffn_gate_inp")
        scores = sigmoid(logits) if self.key("expert_gating_func") == 2 else softmax(logits)
        weighed = {"divided": self.key("expert_weights_norm"), "scale": self.key("expert_weights_scale")}
        return mixture(self, x, name, scores, self.bias(scores, name), **weighed) + self.feed_forward(x, name, "_shexp")

    def bias(self, scores, name):
        if f"{name}.exp_probs_b.bias" not in self.weights:
            return np.zeros_like(scores)
        grouped = self.key("expert_group_count", 1) > 1
        return super().bias(scores, name) if grouped else self.weights[f"{name}.exp_probs_b.bias"]
