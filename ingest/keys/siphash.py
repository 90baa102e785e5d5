"""SipHash-2-4 with 128 bits of output, for many messages at once: each step is one operation of numpy over
all of them (Aumasson and Bernstein, "SipHash: a fast short-input PRF"; the 128-bit form of their reference
code).

No package hashes Arrow columns in one call and promises that the result stays: those of pandas, DuckDB and
Polars have 64 bits or change between versions, and xxhash, mmh3 and hashlib are called once a row.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

WORD_BYTES = 8
_COMPRESSION_ROUNDS, _FINAL_ROUNDS = 2, 4
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_WIDE, _SECOND_WORD = np.uint64(0xEE), np.uint64(0xDD)


@dataclass(slots=True)
class SipHash:
    """The four words of state of each of `n` messages that are hashed side by side."""

    v0: Words
    v1: Words
    v2: Words
    v3: Words
    _spare: Words = field(init=False)

    def __post_init__(self) -> None:
        self._spare = np.empty_like(self.v0)

    def spread(self, count: int) -> "SipHash":
        """The state of one message, as that of `count` messages which begin alike."""
        return SipHash(*(np.repeat(words, count) for words in (self.v0, self.v1, self.v2, self.v3)))

    def first(self, count: int) -> "SipHash":
        """The same states, of the first `count` messages alone: what is done to them is done here."""
        return SipHash(self.v0[:count], self.v1[:count], self.v2[:count], self.v3[:count])

    def take(self, word: Words | np.uint64) -> None:
        """Takes the next eight bytes of each message, or the same ones for all, as little-endian words."""
        self.v3 ^= word
        self._mix(_COMPRESSION_ROUNDS)
        self.v0 ^= word

    def digests(self) -> tuple[Words, Words]:
        """The first and the second half of each message's hash. Ends the states."""
        self.v2 ^= _WIDE
        self._mix(_FINAL_ROUNDS)
        first = self.v0 ^ self.v1 ^ self.v2 ^ self.v3
        self.v1 ^= _SECOND_WORD
        self._mix(_FINAL_ROUNDS)
        return first, self.v0 ^ self.v1 ^ self.v2 ^ self.v3

    def _mix(self, rounds: int) -> None:
        v0, v1, v2, v3 = self.v0, self.v1, self.v2, self.v3
        for _ in range(rounds):
            v0 += v1
            self._rotate(v1, 13)
            v1 ^= v0
            self._rotate(v0, 32)
            v2 += v3
            self._rotate(v3, 16)
            v3 ^= v2
            v0 += v3
            self._rotate(v3, 21)
            v3 ^= v0
            v2 += v1
            self._rotate(v1, 17)
            v1 ^= v2
            self._rotate(v2, 32)

    def _rotate(self, words: Words, bits: int) -> None:
        np.left_shift(words, np.uint64(bits), out=self._spare)
        np.right_shift(words, np.uint64(64 - bits), out=words)
        words |= self._spare


def siphash(key: bytes) -> SipHash:
    """The state of one message before its first byte, under a key of 16 bytes."""
    halves = np.frombuffer(key, "<u8")
    with_key = [
        np.array([initial], np.uint64) ^ halves[at % 2 : at % 2 + 1] for at, initial in enumerate(_INITIAL)
    ]
    with_key[1] ^= _WIDE
    return SipHash(*with_key)


def last_word(length: int) -> np.uint64:
    """The word that ends a message of whole words: its length in bytes, in the highest byte."""
    return np.uint64((length & 0xFF) << 56)
