#!/usr/bin/env python3
"""NumPy and we see each other's tensors through DLPack.

Usage: dlpack_numpy.py BRIDGE

BRIDGE is the shared library of dlpack_bridge.cpp. Needs NumPy 2.1 or newer, here or in the repository's .venv
(tools/install_dependencies.sh full); without it it says so and exits with 77.
"""
import ctypes
import gc
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77

try:
    import numpy

    if tuple(int(part) for part in numpy.__version__.split(".")[:2]) < (2, 1):
        raise ImportError  # knows DLPack before version 1.0 only
except ImportError:
    own = ROOT / ".venv/bin/python"
    if own.exists() and not os.environ.get("FLATSHARD_IN_VENV"):
        os.environ["FLATSHARD_IN_VENV"] = "1"
        os.execv(own, [str(own), *sys.argv])
    print("skipped: NumPy 2.1 is not here (tools/install_dependencies.sh full)")
    sys.exit(SKIPPED)

NEW, OLD = b"dltensor_versioned", b"dltensor"  # names of capsules; a consumer puts used_ before
USED = {NEW: b"used_dltensor_versioned", OLD: b"used_dltensor"}
WEIGHTS, MASTER, GRADIENT, FIRST_STATE = range(4)

python = ctypes.pythonapi
python.PyCapsule_New.restype = ctypes.py_object
python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

bridge = None


def load(path):
    library = ctypes.CDLL(path)
    library.export_tensor.restype = ctypes.c_void_p
    library.export_gradient_unversioned.restype = ctypes.c_void_p
    for name in ["double_floats", "double_integers", "double_unversioned", "assign_weight"]:
        function = getattr(library, name)
        function.restype = ctypes.c_char_p
        function.argtypes = [ctypes.c_void_p]
    return library


class Ours:
    """A tensor of ours, as NumPy asks for it."""

    def __init__(self, pointer, name=NEW):
        self.pointer, self.name = pointer, name

    def __dlpack__(self, **_):
        return python.PyCapsule_New(self.pointer, self.name, None)

    def __dlpack_device__(self):
        return (1, 0)


def ours(which):
    return numpy.from_dlpack(Ours(bridge.export_tensor(which)))


def given(array, name=NEW):
    """Pointer to a tensor of NumPy's, which is ours from now on."""
    capsule = array.__dlpack__(max_version=(1, 0)) if name == NEW else array.__dlpack__()
    pointer = python.PyCapsule_GetPointer(capsule, name)
    python.PyCapsule_SetName(capsule, USED[name])
    return pointer


class Export(unittest.TestCase):
    def setUp(self):
        bridge.open_session()

    def tearDown(self):
        bridge.close_session()
        gc.collect()
        self.assertEqual(bridge.session_lives(), 0)

    def test_weights_have_shape_values_and_are_read_only(self):
        weights = ours(WEIGHTS)
        self.assertEqual((weights.shape, weights.dtype), ((3, 5), numpy.float32))
        self.assertFalse(weights.flags.writeable)
        expected = numpy.arange(15, dtype=numpy.float32) / 4
        changed = numpy.flatnonzero(numpy.abs(weights.ravel() / numpy.maximum(expected, 1e-9) - 1) > 0.02)
        self.assertIn(7, changed)  # the one that had a gradient; the others decayed by half a percent

    def test_master_gradient_and_states_lie_where_they_are(self):
        master, gradient, state = ours(MASTER), ours(GRADIENT), ours(FIRST_STATE)
        numpy.testing.assert_array_equal(master, ours(WEIGHTS).ravel())
        self.assertFalse(master.flags.writeable)
        expected = numpy.zeros(15, numpy.float32)
        expected[7] = 2
        numpy.testing.assert_array_equal(gradient, expected)
        self.assertAlmostEqual(state[7], 0.2, places=6)
        self.assertEqual(numpy.count_nonzero(state), 1)
        gradient[3] = 9  # the same memory
        self.assertEqual(ours(GRADIENT)[3], 9)

    def test_the_older_version_is_understood(self):
        gradient = numpy.from_dlpack(Ours(bridge.export_gradient_unversioned(), OLD))
        self.assertEqual(gradient[7], 2)

    def test_a_tensor_keeps_everything_alive(self):
        state = ours(FIRST_STATE)
        bridge.close_session()
        self.assertEqual(bridge.session_lives(), 1)
        self.assertAlmostEqual(state[7], 0.2, places=6)
        del state
        gc.collect()
        self.assertEqual(bridge.session_lives(), 0)
        bridge.open_session()


class Import(unittest.TestCase):
    def test_our_writes_reach_numpy(self):
        floats = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
        self.assertEqual(bridge.double_floats(given(floats)), b"done")
        numpy.testing.assert_array_equal(floats, [[0, 2, 4], [6, 8, 10]])
        self.assertEqual(bridge.double_unversioned(given(floats, OLD)), b"done")
        self.assertEqual(floats[1, 2], 20)
        integers = numpy.arange(4)
        self.assertEqual(bridge.double_integers(given(integers)), b"done")
        numpy.testing.assert_array_equal(integers, [0, 2, 4, 6])
        for empty in [numpy.zeros((0, 3), numpy.float32), numpy.array(3, numpy.float32)]:
            self.assertEqual(bridge.double_floats(given(empty)), b"done")

    def test_what_cannot_be_viewed_is_refused_and_given_back(self):
        floats = numpy.ones((4, 3), numpy.float32)
        before = sys.getrefcount(floats)
        self.assertIn(b"row-major", bridge.double_floats(given(floats.T)))
        self.assertIn(b"row-major", bridge.double_floats(given(floats[:, :2])))
        self.assertEqual(bridge.double_floats(given(floats[1:3])), b"done")
        self.assertIn(b"float32, not int64", bridge.double_integers(given(floats)))
        self.assertIn(b"code 5, 64 bits", bridge.double_floats(given(numpy.ones(3, numpy.complex64))))
        floats.flags.writeable = False
        self.assertIn(b"read-only", bridge.double_floats(given(floats)))
        gc.collect()
        self.assertEqual(sys.getrefcount(floats), before)
        misaligned = numpy.frombuffer(bytearray(9), numpy.uint8)[1:].view(numpy.float32)
        self.assertIn(b"no multiple of 4", bridge.double_floats(given(misaligned)))

    def test_parameters_are_assigned_from_arrays(self):
        bridge.open_session()
        values = numpy.random.default_rng().normal(size=(3, 5))
        self.assertEqual(bridge.assign_weight(given(values)), b"done")
        numpy.testing.assert_array_equal(ours(WEIGHTS), values.astype(numpy.float32))
        self.assertIn(b"15 elements, not 5", bridge.assign_weight(given(values[0])))
        bridge.close_session()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    bridge = load(sys.argv.pop())
    unittest.main()
