"""A DFlash drafter ("DFlash", arXiv 2602.06036): layers that predict several tokens in one pass, from projected rows of the model."""
import numpy as np

from model import Cache, Model, softmax


class DFlash(Model):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.tokens = next((t.data for t in reader.tensors if t.name == "d2t"), None)

    def sight(self, layer):
        """Returns the layer's window (0 for none), and whether its rows attend only to positions up to their own."""
        window = self.key("attention.sliding_window", 0)
        slides = window > 0 and bool(self.key("attention.sliding_window_pattern", [True] * self.layers)[layer])
        return (window if slides else 0), self.key("attention.causal", slides)

    def attend(self, block, context, layer):
        """Returns the attention of the block's rows to the context rows before the block and to each other."""
        name, before, n = f"blk.{layer}", len(context), len(block)
        project = lambda x, part, heads: self.linear(x, f"{name}.attn_{part}").reshape(len(x), heads, self.head_dim)
        both = np.concatenate([context, block])
        q = self.rotate(self.norm(project(block, "q", self.heads), f"{name}.attn_q_norm"), before, layer)
        k = self.rotate(self.norm(project(both, "k", self.kv_heads), f"{name}.attn_k_norm"), 0, layer)
        v = project(both, "v", self.kv_heads)
        q = q.reshape(n, self.kv_heads, -1, self.head_dim)
        scores = np.einsum("nhgd,mhd->hgnm", q, k) * self.scale
        own, seen = before + np.arange(n)[:, None], np.arange(before + n)
        window, causal = self.sight(layer)
        hidden = ((own - seen >= window) if window else False) | ((seen > own) if causal else False)
        mixed = np.einsum("hgnm,mhd->nhgd", softmax(np.where(hidden, -np.inf, scores)), v)
        return self.linear(mixed.reshape(n, -1), f"{name}.attn_output")

    def drafts_of(self, model, tokens, steps, top):
        """Returns the predictions of `steps` mask tokens after the last token: for each its most likely token, and the
        log-probabilities of the `top` most likely tokens."""
        shared = lambda name: self if f"{name}.weight" in self.weights else model
        hidden = model.layer_rows(tokens[:-1], Cache(model.layers))
        rows = np.concatenate([hidden[layer] for layer in self.key("target_layers")], axis=1)
        context = self.norm(self.linear(rows, "fc"), "enc.output_norm")
        block = [tokens[-1]] + steps * [self.fields["tokenizer.ggml.mask_token_id"]]
        x = shared("token_embd").weights["token_embd.weight"][block]
        for layer in range(self.layers):
            x = x + self.attend(self.norm(x, f"blk.{layer}.attn_norm"), context, layer)
            x = x + self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm"), f"blk.{layer}")
        logits = shared("output").logits(self.norm(x[1:], "output_norm"))
        logits = logits - logits.max(axis=1, keepdims=True)
        out = []
        for row in logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)):
            order = np.argsort(-row, kind="stable")[:top]
            token = int(order[0]) if self.tokens is None else int(self.tokens[order[0]])
            out.append({"token": token, "top": [[int(i), float(row[i])] for i in order]})
        return out
