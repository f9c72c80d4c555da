#!/usr/bin/env python3
"""Checks the lines `words` and `direction` of known-answers.txt, `project` of large Hadamard sketches, and the sums of `rademacher` that
depend on their order, without a line of the Rust code.

Needs Python 3.10 and nothing else; `python3 check_known_answers.py` says how many lines hold.
"""

import math
import os
import struct
from fractions import Fraction

MASK = 0xFFFFFFFF


def f32(x):
    """The nearest f32 to an exact number, ties to even."""
    if x == 0:
        return Fraction(0)
    x = Fraction(x)
    exponent = math.floor(math.log2(abs(x)))
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    unit = Fraction(2) ** (exponent - 23)
    return round(x / unit) * unit


def bits(x):
    return struct.pack(">f", float(x)).hex()


def fma(x, y, z):
    return f32(x * y + z)


def root(x):
    """The correctly rounded square root."""
    if x == 0:
        return Fraction(0)
    scale = 200
    return f32(Fraction(math.isqrt(int(x * 4**scale)), 2**scale))


def horner(coefficients, x):
    value = coefficients[-1]
    for coefficient in reversed(coefficients[:-1]):
        value = fma(value, x, coefficient)
    return value


def rotl(x, n):
    return (x << n | x >> (32 - n)) & MASK


def chacha12(key, counter, nonce):
    start = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key), counter, *struct.unpack("<3I", nonce)]
    x = start[:]

    def quarter(a, b, c, d):
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotl(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & MASK
        x[d] = rotl(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 7)

    for _ in range(6):
        for k in range(4):
            quarter(k, 4 + k, 8 + k, 12 + k)
        for k in range(4):
            quarter(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return [(a + b) & MASK for a, b in zip(x, start)]


def blake3_keyed(message, key):
    """BLAKE3 with a key, for messages of one block (https://github.com/BLAKE3-team/BLAKE3-specs, section 2.2)."""
    start = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A)
    order = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
    words = list(struct.unpack("<16I", message.ljust(64, b"\0")))
    # Counter 0; the flags of a first and last block, a root, a keyed hash.
    x = [*struct.unpack("<8I", key), *start, 0, 0, len(message), 1 | 2 | 8 | 16]

    def quarter(a, b, c, d, first, second):
        x[a] = (x[a] + x[b] + first) & MASK
        x[d] = rotl(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 20)
        x[a] = (x[a] + x[b] + second) & MASK
        x[d] = rotl(x[d] ^ x[a], 24)
        x[c] = (x[c] + x[d]) & MASK
        x[b] = rotl(x[b] ^ x[c], 25)

    for _ in range(7):
        for k in range(4):
            quarter(k, 4 + k, 8 + k, 12 + k, words[2 * k], words[2 * k + 1])
        for k in range(4):
            quarter(k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4, words[8 + 2 * k], words[9 + 2 * k])
        words = [words[k] for k in order]
    return struct.pack("<8I", *(x[k] ^ x[8 + k] for k in range(8)))


def purpose_key(seed, purpose):
    return blake3_keyed(b"corewire purpose " + struct.pack("<I", purpose), seed)


def block(seed, purpose, round_, row, counter):
    key = purpose_key(seed, purpose)
    return chacha12(key, counter, struct.pack("<QI", round_, row))


def generator(state):
    s = list(state)
    while True:
        yield (rotl((s[0] + s[3]) & MASK, 7) + s[0]) & MASK
        t = s[1] << 9 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotl(s[3], 11)


def radius(polynomials, k):
    u = f32(k) / 2**31
    exponent = 0
    while u * Fraction(2) ** -exponent < Fraction(struct.unpack(">f", bytes.fromhex("3f3504f3"))[0]):
        exponent -= 1
    z = f32(u * Fraction(2) ** -exponent - 1)
    return root(fma(Fraction(exponent), polynomials["ln2"][0], f32(z * horner(polynomials["ln"], z))))


def turn(polynomials, r, t, sign):
    t = t - 2**32 if t >> 31 else t
    y = f32(t) / 2**31
    r = -r if sign else r
    square = f32(y * y)
    sine = f32(y * horner(polynomials["sin"], square))
    return f32(r * horner(polynomials["cos"], square)), f32(r * sine)


def quantile(polynomials, half):
    v = 2 * (half & 0x7FFF) + 1
    s = (v.bit_length() - 1) // 2
    value = horner([polynomials[f"quantile-{k}"][(s + 7) % 8] for k in range(4)], Fraction(2 * v, 4**s))
    return -value if half >> 15 else value


def gaussian(polynomials, seed, strict, round_, row, c):
    """Entry c: four entries of lane c mod 16 are made together, so the generator is run to the right group."""
    tile, lane, group = c // 4096, c % 16, c % 4096 // 64
    blocks = [block(seed, 0, round_, row, 4 * tile + i) for i in range(4)]
    words = generator([blocks[i][lane] for i in range(4)])
    if strict:
        w = [[next(words) for _ in range(4)] for _ in range(group + 1)][-1]
        entries = []
        for v, w in (w[:2], w[2:]):
            entries += turn(polynomials, radius(polynomials, v >> 1 | 1), (w << 1 | 1) & MASK, w >> 31)
    else:
        pair = [[next(words) for _ in range(2)] for _ in range(group + 1)][-1]
        a, b, c_, d = (quantile(polynomials, half) for w in pair for half in (w >> 16, w & 0xFFFF))
        p, q, r, s = f32(a + b), f32(a - b), f32(c_ + d), f32(c_ - d)
        entries = [f32(p + r), f32(q + s), f32(p - r), f32(q - s)]
    return entries[c % 64 // 16]


def hadamard_order(dim):
    """The order of the matrix, and of Paley's factor in it."""
    power = 1 << (dim - 1).bit_length()
    if dim > 65536:
        for base, size in ((20, power // 8 * 5), (12, power // 8 * 6)):
            if dim <= size:
                return size, base
    return power, 1


def hadamard_rows(seed, round_, of, count):
    """Floyd's choice of rows. The draws are the high words of products; one in 2^40 or fewer is rejected, and then the draw is made anew."""
    key = purpose_key(seed, 1)
    words = (w for k in range(2**32) for w in chacha12(key, k, struct.pack("<QI", round_, 0)))
    left_out = count > of // 2
    draws = of - count if left_out else count
    chosen = set()
    for last in range(of - draws, of):
        bound = last + 1
        while True:
            product = (next(words) | next(words) << 32) * bound
            if product % 2**64 >= 2**64 % bound:
                break
        row = product >> 64
        chosen.add(last if row in chosen else row)
    return sorted(set(range(of)) - chosen if left_out else chosen)


class Hadamard:
    """The directions of one round."""

    def __init__(self, seed, keys):
        self.round, self.seed, self.blocks = int(keys["round"]), seed, {}
        self.order, self.base = hadamard_order(int(keys["dim"]))
        self.rows = hadamard_rows(seed, self.round, self.order, int(keys["budget"]))
        self.squares = {x * x % (self.base - 1) for x in range(1, self.base - 1)} if self.base > 1 else set()

    def sign(self, c):
        number = c // 512
        if number not in self.blocks:
            self.blocks[number] = block(self.seed, 0, self.round, 0, number)
        return -1 if self.blocks[number][c % 16] >> (31 - c % 512 // 16) & 1 else 1

    def entry(self, row, c):
        rest = self.order // self.base
        (i, low), (k, high) = divmod(self.rows[row], rest), divmod(c, rest)
        negative = i != k and i != 0 and (k == 0 or (i - k) % (self.base - 1) not in self.squares)
        odd = (low & high).bit_count() % 2 == 1
        return self.sign(c) * (-1 if odd != negative else 1)


class Rademacher:
    """The directions of one round, and sums over them in their order, in f32."""

    def __init__(self, seed, keys):
        self.seed, self.round = seed, int(keys["round"])
        self.dim, self.budget, self.blocks = int(keys["dim"]), int(keys["budget"]), {}

    def signed(self, row, c, x):
        at = (row, c // 512)
        if at not in self.blocks:
            self.blocks[at] = block(self.seed, 0, self.round, *at)
        return -x if self.blocks[at][c % 16] >> (31 - c % 512 // 16) & 1 else x

    def project(self, row, vector):
        total = Fraction(0)
        x = [self.signed(row, c, vector[c]) if c < self.dim else Fraction(0) for c in range(-(-self.dim // 512) * 512)]
        for start in range(0, self.dim, 512):
            lanes = [Fraction(0)] * 16
            for c in range(start, start + 512, 64):
                lanes = [f32(lane + sum_of_four(x[c + l], x[c + 16 + l], x[c + 32 + l], x[c + 48 + l])) for l, lane in enumerate(lanes)]
            while len(lanes) > 1:
                half = len(lanes) // 2
                lanes = [f32(lanes[l] + lanes[l + half]) for l in range(half)]
            total = f32(total + lanes[0])
        return total

    def rebuild(self, c, scalars):
        y = [self.signed(row, c, scalar) for row, scalar in enumerate(scalars)] + [Fraction(0)] * 3
        total = Fraction(0)
        for row in range(0, self.budget, 4):
            total = f32(total + sum_of_four(*y[row : row + 4]))
        return f32(total / self.budget)


def sum_of_four(a, b, c, d):
    return f32(f32(a + b) + f32(c + d))


def main():
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "known-answers.txt")
    polynomials, seed, held = {}, None, 0
    for line in open(path, encoding="utf-8"):
        head, _, answer = line.strip().partition(" :")
        kind, *pairs = head.removeprefix("# ").split() if head else [""]
        answer = answer.split()
        keys = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if kind == "polynomial":
            polynomials[keys["name"]] = [Fraction(struct.unpack(">f", bytes.fromhex(a))[0]) for a in answer]
        elif kind == "seed" and answer:
            seed = bytes.fromhex(answer[0])
        elif kind == "words" and answer:
            stream = [w for k in range(2) for w in block(seed, int(keys["purpose"]), int(keys["round"]), int(keys["row"]), k)]
            found = [f"{stream[2 * k + 1]:08x}{stream[2 * k]:08x}" for k in range(len(answer))]
            assert found == answer, line
            held += 1
        elif kind == "direction" and answer and keys["family"] == "hadamard":
            sketch = Hadamard(seed, keys)
            start = int(keys["from"])
            found = [bits(sketch.entry(int(keys["row"]), c)) for c in range(start, start + len(answer))]
            assert found == answer, f"{line}\n{found}"
            held += 1
        elif kind in ("project", "rebuild") and answer and "thirds" in keys:
            sketch = Rademacher(seed, keys)
            if kind == "project":
                vector = [f32(Fraction(37 * c % 19 - 9, 24)) for c in range(sketch.dim)]
                found = [bits(sketch.project(row, vector)) for row in range(sketch.budget)]
            else:
                scalars = [f32(Fraction(5 * j % 11 - 5, 12)) for j in range(sketch.budget)]
                found = [bits(sketch.rebuild(c, scalars)) for c in range(sketch.dim)]
            assert found == answer, f"{line}\n{found}"
            held += 1
        elif kind == "project" and answer and keys["family"] == "hadamard" and int(keys["dim"]) > 65536:
            sketch = Hadamard(seed, keys)
            dim = int(keys["dim"])
            sums = [Fraction(sum(sketch.entry(j, c) * (37 * c % 19 - 9) for c in range(dim)), 8) for j in range(len(answer))]
            assert [bits(x) for x in sums] == answer, line
            held += 1
        elif kind == "direction" and answer:
            round_, row, start = int(keys["round"]), int(keys["row"]), int(keys["from"])
            found = []
            for c in range(start, start + len(answer)):
                if keys["family"] == "rademacher":
                    word = block(seed, 0, round_, row, c // 512)[c % 16]
                    found.append(bits(-1 if word >> (31 - c % 512 // 16) & 1 else 1))
                else:
                    found.append(bits(gaussian(polynomials, seed, keys["family"] == "gaussian-strict", round_, row, c)))
            assert found == answer, f"{line}\n{found}"
            held += 1
    assert held > 0, f"{path} has no line that can be checked"
    print(f"{held} known answers hold in Python")


if __name__ == "__main__":
    main()
