"""Mellum 2, as Hugging Face's modeling_mellum.py has it: Qwen3's experts; layers but every fourth have a window, and the others YaRN."""
from post_normed import Olmo2, PostNormed
from qwen3moe import Qwen3Moe
from yarn import yarn


class Mellum(Qwen3Moe):
    window = PostNormed.window
    frequencies_of = Olmo2.frequencies_of
    magnitude_of = Olmo2.magnitude_of

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.near = self.frequencies
        yarn(self)
