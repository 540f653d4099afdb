"""An EAGLE-3 drafter: one layer, which reads a token beside the projection of three rows of the model ("EAGLE-3", arXiv 2503.01840)."""
import numpy as np

from llama import Llama
from model import Cache


class Eagle3(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.tokens = next((t.data for t in reader.tensors if t.name == "d2t"), None)

    def drafts_of(self, model, tokens, steps, top):
        """What the drafter takes for likeliest after the tokens, then after its own choice, and so on: it sees each token beside the
        model's rows before it, and of a draft beside its own last row. As in compy, and unlike in llama.cpp, the first token has zeros
        before it."""
        shared = lambda name: self if f"{name}.weight" in self.weights else model
        embedding = shared("token_embd").weights["token_embd.weight"]
        hidden = model.layer_rows(tokens[:-1], Cache(model.layers))
        rows = np.concatenate([hidden[layer] for layer in self.key("target_layers")], axis=1)
        if self.key("norm_before_fc"):
            rows = self.norm(rows, "enc.output_norm")
        before = self.linear(rows, "fc")
        before = np.concatenate([np.zeros((1, before.shape[1])), before])
        cache, out, name = Cache(1), [], "blk.0"
        for _ in range(steps):
            normed = self.norm(before, f"{name}.attn_norm_2")
            both = np.concatenate([self.norm(embedding[tokens], f"{name}.attn_norm"), normed], axis=1)
            x = (normed if self.key("norm_before_residual") else before) + self.attention(both, 0, cache)
            x = x + self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name)
            cache.length += len(tokens)
            before = x[-1:]
            logits = shared("output").logits(self.norm(before, "output_norm"))[0]
            logits = logits - logits.max()
            row = logits - np.log(np.exp(logits).sum())
            order = np.argsort(-row, kind="stable")[:top]
            token = int(order[0]) if self.tokens is None else int(self.tokens[order[0]])
            tokens = [token]
            out.append({"token": token, "top": [[int(i), float(row[i])] for i in order]})
        return out
