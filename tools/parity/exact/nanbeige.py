"""Nanbeige 4.2, as SGLang's srt/models/nanbeige.py has it: Llama, whose rows go through all layers several times. Each pass has a cache
of its own, and ends with the model's norm unless the file skips it; the last one always does."""
from llama import Llama
from model import Cache


class Nanbeige(Llama):
    def rows(self, tokens, cache):
        loops = self.key("num_loops", 1)
        x = self.embed(tokens)
        for loop, of in enumerate(caches_of(cache, loops, self.layers)):
            of.length = cache.length
            for layer in range(self.layers):
                x = self.layer(x, layer, of)
            if loop == loops - 1 or not self.key("skip_loop_final_norm", False):
                x = self.norm(x, self.output_norm)
        cache.length += len(tokens)
        return x


def caches_of(cache, loops, layers):
    """One a pass, which a sequence's cache carries along."""
    if not hasattr(cache, "passes"):
        cache.passes = [Cache(layers, cache.rounds) for _ in range(loops)]
    return cache.passes
