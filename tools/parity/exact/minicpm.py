"""MiniCPM: Granite's multipliers but for attention's, and LongRoPE."""
from granite import Granite
from longrope import longrope


class MiniCpm(Granite):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        longrope(self)
