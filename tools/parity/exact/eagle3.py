"""An EAGLE-3 drafter ("EAGLE-3", arXiv 2503.01840): one layer that reads a token and a projection of three of the model's rows."""
import numpy as np

from llama import Llama
from model import Cache


class Eagle3(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.tokens = next((t.data for t in reader.tensors if t.name == "d2t"), None)

    def drafts_of(self, model, tokens, steps, top):
        """Returns `steps` draft steps: each step's most likely token, and the log-probabilities of the `top` most likely tokens.

        The first step reads each token with the model's rows of the token before it. Later steps read the drafted token with the
        drafter's own last row. As in compy, and unlike in llama.cpp, the first token of the prompt has zeros as its previous row."""
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
