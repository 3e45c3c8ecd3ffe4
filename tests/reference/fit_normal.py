#!/usr/bin/env python3
"""Fits the coefficients of include/flatshard/ops/normal.hpp (needs numpy and mpmath).

x(t) = P(t) / Q(t) where t = sqrt(-2 log p) and x is the point that a standard normal number exceeds
with probability p, for 2^-54 <= p <= 1/2. Weighted least squares on the linearised problem, weights
moved towards equal errors (Lawson), coefficients printed as C++ hexadecimal floats.
"""
import sys

import mpmath
import numpy

mpmath.mp.dps = 40
DEGREE = int(sys.argv[1]) if len(sys.argv) > 1 else 5
SMALLEST = mpmath.sqrt(2 * mpmath.log(2))
LARGEST = mpmath.sqrt(2 * 54 * mpmath.log(2))


def upper_point(p):
    """x with erfc(x / sqrt 2) / 2 == p, by Newton from the asymptotic value."""
    t = mpmath.sqrt(-2 * mpmath.log(p))
    x = t - (mpmath.log(t * mpmath.sqrt(2 * mpmath.pi)) / t if t > 2 else mpmath.mpf(1))
    for _ in range(60):
        density = mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * mpmath.pi)
        step = (mpmath.erfc(x / mpmath.sqrt(2)) / 2 - p) / density
        x += step
        if abs(step) < mpmath.mpf(10) ** -35:
            break
    return x


def samples(count):
    angles = [mpmath.cos(mpmath.pi * (k + mpmath.mpf(1) / 2) / count) for k in range(count)]
    ts = [(SMALLEST + LARGEST) / 2 + (LARGEST - SMALLEST) / 2 * a for a in angles]
    return ts, [upper_point(mpmath.exp(-t * t / 2)) for t in ts]


def solve(ts, xs, weights, size):
    rows = mpmath.matrix(len(ts), 2 * size - 1)
    right = mpmath.matrix(len(ts), 1)
    for i, (t, x, w) in enumerate(zip(ts, xs, weights)):
        for k in range(size):
            rows[i, k] = w * t**k
        for k in range(1, size):
            rows[i, size - 1 + k] = -w * x * t**k
        right[i] = w * x
    solution = mpmath.lu_solve(rows.T * rows, rows.T * right)
    return list(solution[:size]), [mpmath.mpf(1)] + list(solution[size:])


def horner(coefficients, t):
    value = mpmath.mpf(0)
    for c in reversed(coefficients):
        value = value * t + c
    return value


def main():
    size = DEGREE + 1
    ts, xs = samples(20 * size)
    lawson = numpy.ones(len(ts))
    denominators = [mpmath.mpf(1)] * len(ts)
    for _ in range(25):
        weights = [mpmath.sqrt(mpmath.mpf(float(w))) / q for w, q in zip(lawson, denominators)]
        p, q = solve(ts, xs, weights, size)
        denominators = [horner(q, t) for t in ts]
        errors = numpy.array([float(abs(horner(p, t) / d - x)) for t, d, x in zip(ts, denominators, xs)])
        lawson = lawson * errors
        lawson = lawson / lawson.sum() * len(ts)
    print("// largest error", errors.max())
    for name, coefficients in (("numerator", p), ("denominator", q)):
        print(name, ", ".join(float(c).hex() for c in coefficients))


if __name__ == "__main__":
    main()
