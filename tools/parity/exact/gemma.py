"""Gemma 3 (arXiv 2503.19786) and Gemma 4: norms before and after each half, GeGLU, windows in most layers."""
import numpy as np

from model import Cache, Model, softmax


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)))


class Gemma(Model):
    """Gemma 1 (arXiv 2403.08295)."""

    def embed(self, tokens):
        return self.weights["token_embd.weight"][tokens] * np.sqrt(self.key("embedding_length"))

    def feed_forward(self, x, name):
        return self.linear(gelu(self.linear(x, f"{name}.ffn_gate")) * self.linear(x, f"{name}.ffn_up"), f"{name}.ffn_down")


class Gemma3(Gemma):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        width = self.key("embedding_length")
        if self.layers == 62:
            self.scale = 1 / np.sqrt(width // self.heads)
        near = float(self.key("rope.freq_base_swa", 1e4))
        self.near = near ** -(np.arange(0, self.rotated, 2) / self.rotated)
        self.frequencies = self.frequencies / float(self.key("rope.scaling.factor", 1))

    def slides(self, layer):
        return layer % 6 != 5

    def window(self, layer):
        return self.key("attention.sliding_window") if self.slides(layer) else 0

    def frequencies_of(self, layer):
        return self.near if self.slides(layer) else self.frequencies

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.norm(self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache), f"{name}.post_attention_norm")
        return x + self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm")

    def logits(self, rows):
        cap = self.key("final_logit_softcapping")
        logits = super().logits(rows)
        return cap * np.tanh(logits / cap) if cap else logits


class Gemma2(Gemma3):
    """Gemma 2 (arXiv 2408.00118): a window in every second layer, and scores of attention that tanh bounds."""

    def slides(self, layer):
        return layer % 2 == 0

    def frequencies_of(self, layer):
        return self.frequencies

    def bounded(self, scores):
        cap = self.key("attn_logit_softcapping")
        return cap * np.tanh(scores / cap)


class GemmaEmbedding(Gemma3):
    """Gemma 3's layers in both directions (arXiv 2509.20354); windows reach half their length to both sides."""

    def attention(self, x, layer, cache):
        n, name, group = len(x), f"blk.{layer}", self.heads // self.kv_heads
        q, k, v = self.queries_keys_values(x, name)
        q = self.rotate(self.norm(q, f"{name}.attn_q_norm"), 0, layer).reshape(n, self.kv_heads, group, self.head_dim)
        k = self.rotate(self.norm(k, f"{name}.attn_k_norm"), 0, layer)
        far, window = np.abs(np.arange(n)[:, None] - np.arange(n)), self.window(layer)
        scores = np.einsum("nhgd,mhd->hgnm", q, k) * self.scale
        weights = softmax(np.where(far > window // 2, -np.inf, scores) if window else scores)
        mixed = np.einsum("hgnm,mhd->nhgd", weights, v).reshape(n, -1)
        return self.linear(mixed, f"{name}.attn_output")

    def pooled(self, tokens, way):
        row = super().pooled(tokens, way)
        return self.linear(self.linear(row, "dense_2"), "dense_3") if "dense_2.weight" in self.weights else row


class Gemma4(Gemma3):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.scale = 1
        self.own = self.layers - self.key("attention.shared_kv_layers", 0)
        rotated, base = self.key("rope.dimension_count_swa", self.rotated), float(self.key("rope.freq_base_swa", 1e4))
        self.near = base ** -(np.arange(0, rotated, 2) / rotated)

    def slides(self, layer):
        return bool(self.key("attention.sliding_window_pattern")[layer])

    def attention(self, x, layer, cache):
        n, name = len(x), f"blk.{layer}"
        dim = self.key("attention.key_length_swa", self.head_dim) if self.slides(layer) else self.head_dim
        kv_heads = np.broadcast_to(self.key("attention.head_count_kv"), self.layers)[layer]
        q = self.norm(self.linear(x, f"{name}.attn_q").reshape(n, self.heads, dim), f"{name}.attn_q_norm")
        q = cache.queries(self.rotate(q, cache.length, layer).reshape(n, kv_heads, -1, dim))
        source = layer
        if layer < self.own:
            k = self.linear(x, f"{name}.attn_k").reshape(n, kv_heads, dim)
            v = k
            if f"{name}.attn_v.weight" in self.weights:
                v = self.linear(x, f"{name}.attn_v").reshape(n, kv_heads, dim)
            v = v / np.sqrt(np.mean(v * v, axis=-1, keepdims=True) + self.eps)
            keys, values = cache.append(layer, self.rotate(self.norm(k, f"{name}.attn_k_norm"), cache.length, layer), v)
        else:
            source = max(i for i in range(self.own) if self.slides(i) == self.slides(layer))
            keys, values = cache.keys[source], cache.values[source]
        scores = np.einsum("nhgd,mhd->hgnm", q, keys)
        position, seen = cache.length + np.arange(n)[:, None], np.arange(len(keys))
        window = self.window(layer)
        hidden = (seen > position) | ((position - seen >= window) if window else False)
        scores = np.exp(np.where(hidden, -np.inf, scores - scores.max(axis=-1, keepdims=True)))
        weights = cache.weights(source, scores / scores.sum(axis=-1, keepdims=True))
        mixed = np.einsum("hgnm,mhd->nhgd", weights, values)
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")

    def experts(self, x, name):
        """Each row's router sees its direction; the experts' weights are times their scales."""
        direction = x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + x.shape[-1] * self.eps)
        direction = direction * self.weights[f"{name}.ffn_gate_inp.scale"]
        scores = softmax(self.linear(direction, f"{name}.ffn_gate_inp"))
        gate, up, down = (self.weights[f"{name}.ffn_{part}_exps.weight"] for part in ("gate", "up", "down"))
        out, scale = np.zeros_like(x), self.weights[f"{name}.ffn_down_exps.scale"]
        for row, (h, score) in enumerate(zip(self.norm(x, f"{name}.pre_ffw_norm_2"), scores)):
            chosen = np.argsort(-score, kind="stable")[:self.key("expert_used_count")]
            for expert in chosen:
                made = down[expert] @ (gelu(gate[expert] @ h) * (up[expert] @ h))
                out[row] += score[expert] / score[chosen].sum() * scale[expert] * made
        return out

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().layer(x, layer, cache)
        x = x + self.norm(self.mix(self.norm(x, f"{name}.attn_norm"), layer, cache), f"{name}.post_attention_norm")
        dense = self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm_1")
        mixed = self.norm(self.experts(x, name), f"{name}.post_ffw_norm_2")
        return x + self.norm(dense + mixed, f"{name}.post_ffw_norm")

    def layer_rows(self, tokens, cache):
        """Each layer gets its own embedding of the token, beside a projection of the row."""
        x, columns = self.embed(tokens), self.key("embedding_length_per_layer_input")
        rows = [x]
        if columns:
            shape = (len(tokens), self.layers, columns)
            projected = self.linear(x, "per_layer_model_proj").reshape(shape) / np.sqrt(x.shape[-1])
            own = self.weights["per_layer_token_embd.weight"][tokens].reshape(shape) * np.sqrt(columns)
            inputs = (self.norm(projected, "per_layer_proj_norm") + own) / np.sqrt(2)
        for layer in range(self.layers):
            name = f"blk.{layer}"
            x = self.layer(x, layer, cache)
            if columns:
                gated = gelu(self.linear(x, f"{name}.inp_gate")) * inputs[:, layer]
                x = x + self.norm(self.linear(gated, f"{name}.proj"), f"{name}.post_norm")
            x = x * self.weights.get(f"{name}.layer_output_scale.weight", 1)
            rows.append(x)
        cache.length += len(tokens)
        return rows


class Gemma4Assistant(Gemma4):
    """A drafter of Gemma 4 (transformers, models/gemma4_assistant): layers that read the KV caches of the model's last layers."""

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.layers = self.key("block_count")

    def cross(self, x, layer, model, cache, position):
        name, slides = f"blk.{layer}", self.slides(layer)
        source = max(i for i in range(model.own) if model.slides(i) == slides)
        first = max(0, position - self.window(layer) + 1) if slides else 0
        keys, values = cache.keys[source][first:position], cache.values[source][first:position]
        _, kv_heads, dim = keys.shape
        q = self.norm(self.linear(x, f"{name}.attn_q").reshape(1, self.heads, dim), f"{name}.attn_q_norm")
        q = self.rotate(q, position, layer).reshape(kv_heads, -1, dim)
        mixed = np.einsum("hgm,mhd->hgd", softmax(np.einsum("hgd,mhd->hgm", q, keys)), values)
        return self.linear(mixed.reshape(1, -1), f"{name}.attn_output")

    def drafts_of(self, model, tokens, steps, top):
        """As Eagle3.drafts_of. All steps have the position of the last token, and attend to the tokens before it."""
        cache, position, token, out = Cache(model.layers), len(tokens) - 1, tokens[-1], []
        hidden = model.rows(tokens[:-1], cache)[-1:]
        for _ in range(steps):
            x = self.linear(np.concatenate([model.embed([token]), hidden], axis=1), "nextn.pre_projection")
            for layer in range(self.layers):
                name = f"blk.{layer}"
                mixed = self.cross(self.norm(x, f"{name}.attn_norm"), layer, model, cache, position)
                x = x + self.norm(mixed, f"{name}.post_attention_norm")
                x = x + self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm")
                x = x * self.weights[f"{name}.layer_output_scale.weight"]
            last = self.norm(x, self.output_norm)
            logits, hidden = self.linear(last, "token_embd")[0], self.linear(last, "nextn.post_projection")
            logits = logits - logits.max()
            row = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-row, kind="stable")[:top]
            token = int(order[0])
            out.append({"token": token, "top": [[int(i), float(row[i])] for i in order]})
        return out
