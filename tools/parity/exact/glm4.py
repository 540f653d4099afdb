"""GLM-4: norms before and after each half, a part of each head rotated, gate and up in one matrix."""
from gemma import Gemma3
from llama import Llama
from phi3 import Phi3


class Glm4(Llama):
    layer = Gemma3.layer
    feed_forward = Phi3.feed_forward
