"""Which of the compiled bodies runs on this processor, see `simd.h`."""


def instructions():
    """Return the name of the instructions that the loops use: "AVX2 + FMA", "SSE2", "NEON"..."""
    return tk_instructions().decode()
