"""Gemma 3n, as transformers' models/gemma3n computes it: AltUp, LAuReL, sparse gates, and a token's own embedding in each layer."""
import numpy as np

from gemma import Gemma4, gelu


def size(x):
    return np.sqrt(np.mean(x * x, axis=-1, keepdims=True))


class Gemma3n(Gemma4):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.active, self.streams = self.key("altup.active_idx"), self.key("altup.num_inputs")

    def as_large_as(self, x, other):
        return x * size(other) / np.sqrt(np.maximum(np.mean(x * x, axis=-1, keepdims=True), 1e-5))

    def modalities(self, x, name):
        return np.tanh(self.linear(self.norm(x, f"{name}.altup_router_norm") / x.shape[-1], f"{name}.altup_router"))

    def predict(self, streams, name):
        """streams: (streams, tokens, width)"""
        coefs = self.linear(self.modalities(streams[self.active], name), f"{name}.altup_predict_coef")
        coefs = coefs.reshape(-1, self.streams, self.streams)
        return streams + np.einsum("nij,jnd->ind", coefs, streams)

    def correct(self, predictions, activated, name):
        coefs = self.linear(self.modalities(activated, name), f"{name}.altup_correct_coef") + 1
        return predictions + (activated - predictions[self.active]) * coefs.T[..., None]

    def feed_forward(self, x, name):
        gate, deviations = self.linear(x, f"{name}.ffn_gate"), self.key("activation_sparsity_scale")[int(name[4:])]
        if deviations > -np.inf:
            cutoff = gate.mean(axis=-1, keepdims=True) + deviations * gate.std(axis=-1, keepdims=True)
            gate = np.maximum(gate - cutoff, 0)
        return self.linear(gelu(gate) * self.linear(x, f"{name}.ffn_up"), f"{name}.ffn_down")

    def stream_layer(self, streams, layer, inputs, cache):
        name = f"blk.{layer}"
        predictions = self.predict(streams, name)
        active = predictions[self.active]
        h = self.norm(active, f"{name}.attn_norm")
        laurel = h + self.norm(self.linear(self.linear(h, f"{name}.laurel_l"), f"{name}.laurel_r"), f"{name}.laurel_post_norm")
        attended = active + self.norm(self.attention(h, layer, cache), f"{name}.post_attention_norm")
        x = (attended + laurel) / np.sqrt(2)
        x = x + self.norm(self.feed_forward(self.norm(x, f"{name}.ffn_norm"), name), f"{name}.post_ffw_norm")
        corrected = self.correct(predictions, x, name)
        first = corrected[self.active] * self.weights[f"{name}.altup_correct_scale.weight"]
        first = gelu(self.linear(first, f"{name}.inp_gate")) * inputs
        corrected[1:] += self.norm(self.linear(first, f"{name}.proj"), f"{name}.post_norm")
        return corrected

    def rows(self, tokens, cache):
        x, columns = self.embed(tokens), self.key("embedding_length_per_layer_input")
        shape = (len(tokens), self.layers, columns)
        projected = self.linear(x, "per_layer_model_proj").reshape(shape) / np.sqrt(x.shape[-1])
        own = self.weights["per_layer_token_embd.weight"][tokens].reshape(shape) * np.sqrt(columns)
        inputs = (self.norm(projected, "per_layer_proj_norm") + own) / np.sqrt(2)
        streams = np.stack([x, *(self.as_large_as(x @ w.T, x) for w in self.weights["altup_proj.weight"])])
        for layer in range(self.layers):
            streams = self.stream_layer(streams, layer, inputs[:, layer], cache)
        first, others = streams[0], zip(streams[1:], self.weights["altup_unembd_proj.weight"])
        x = np.mean([first, *(self.as_large_as(s @ w.T, first) for s, w in others)], axis=0)
        cache.length += len(tokens)
        return self.norm(x, self.output_norm)
