"""The scan and the cells on NumPy arrays: against plain loops in float64, with gradients against differences."""
import multiprocessing
import sys
import unittest
import unittest.mock

import numpy as np

import minrnn
from minrnn.scans import CANDIDATES


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


CANDIDATE = {"positive": lambda v: np.where(v >= 0, v + 0.5, sigmoid(v)), "linear": lambda v: v, "tanh": np.tanh}


def plain_cell(kind, x, weight, bias, h0, h_init, reset, length, candidate, normalize, signed):
    """The layer as its definition has it, in float64."""
    x, weight = x.astype(np.float64), weight.astype(np.float64)
    B, T, _ = x.shape
    gates = 2 if kind == "mingru" else 3
    H = len(weight) // gates
    pre = x @ weight.T + (0 if bias is None else bias)
    start = np.zeros(H) if h_init is None else CANDIDATE[candidate](h_init.astype(np.float64))
    out, last = np.zeros((B, T, H)), np.zeros((B, H))
    for b in range(B):
        h = start if h0 is None else h0[b].astype(np.float64)
        for t in range(T if length is None else length[b]):
            if reset is not None and reset[b, t]:
                h = start
            parts = np.split(pre[b, t], gates)
            c = CANDIDATE[candidate](parts[-1])
            if kind == "mingru":
                a = np.clip(1.2 * np.tanh(parts[0]), -1, 1) if signed else 1 - sigmoid(parts[0])
                i = 1 - abs(a)
            else:
                i = sigmoid(parts[1])
                a = np.clip(1.2 * np.tanh(parts[0]), -1, 1) if signed else sigmoid(parts[0])
                if normalize:
                    i = (1 - abs(a)) * i if signed else i / (a + i)
                    a = a if signed else 1 - i
            h = a * h + i * c
            out[b, t] = h
        last[b] = h
    return out, last


class Scans(unittest.TestCase):
    def setUp(self):
        self.rng = np.random.default_rng(7)

    def draw(self, *shape, dtype=np.float32):
        return self.rng.standard_normal(shape).astype(dtype)

    def near(self, got, want, tolerance, what=""):
        worst = np.max(np.abs(got - want) / np.maximum(1, np.abs(want)), initial=0)
        self.assertTrue(worst <= tolerance, f"{what}: {worst}")  # NaN is not

    def test_the_scan_is_its_loop(self):
        for B, T, H in (1, 1, 1), (2, 7, 5), (3, 300, 17):
            a, b, h0 = self.draw(B, T, H) * 0.5, self.draw(B, T, H), self.draw(B, H)
            reset = (self.rng.random((B, T)) < 0.1).astype(np.uint8)
            h, last = minrnn.scan(a, b, h0, reset=reset, return_state=True)
            state, want = h0.astype(np.float64), np.empty((B, T, H))
            for t in range(T):
                state = np.where(reset[:, t, None] == 1, 0, a[:, t] * state) + b[:, t]
                want[:, t] = state
            self.near(h, want, 1e-5)
            np.testing.assert_array_equal(last, h[:, -1])

    def test_two_dimensions_are_one_sequence(self):
        a, b, h0 = self.draw(6, 3) * 0.5, self.draw(6, 3), self.draw(3)
        np.testing.assert_array_equal(minrnn.scan(a, b, h0), minrnn.scan(a[None], b[None], h0[None])[0])

    def test_cells_are_their_definition(self):
        for kind, run in ("mingru", minrnn.mingru), ("minlstm", minrnn.minlstm):
            for candidate in CANDIDATES:
                for signed in (False, True):
                    for plain in range(2):
                        self.one_cell(kind, run, candidate, signed, plain)

    def one_cell(self, kind, run, candidate, signed, plain):
        gates = 2 if kind == "mingru" else 3
        x, weight = self.draw(3, 9, 5), self.draw(gates * 4, 5)
        more = {} if kind == "mingru" else {"normalize": not plain}
        if plain:
            bias = h0 = h_init = reset = length = None
        else:
            bias, h0, h_init = self.draw(gates * 4), self.draw(3, 4), self.draw(4)
            reset, length = (self.rng.random((3, 9)) < 0.2).astype(np.uint8), np.array([9, 4, 0], np.int32)
        h, last = run(x, weight, bias, h0, h_init=h_init, reset=reset, length=length, candidate=candidate,
                      signed=signed, **more)
        want = plain_cell(kind, x, weight, bias, h0, h_init, reset, length, candidate, more.get("normalize"), signed)
        self.near(h, want[0], 1e-5, f"{kind} {candidate} {signed} {plain}")
        self.near(last, want[1], 1e-5)

    def test_gradients_are_differences(self):
        for vjp, gates in (minrnn.mingru_vjp, 2), (minrnn.minlstm_vjp, 3):
            arrays = [self.draw(2, 4, 3, dtype=np.float64), self.draw(gates * 3, 3, dtype=np.float64),
                      self.draw(gates * 3, dtype=np.float64), self.draw(2, 3, dtype=np.float64)]
            pull, pull_last = self.draw(2, 4, 3, dtype=np.float64), self.draw(2, 3, dtype=np.float64)

            def loss():
                h, last, _ = vjp(*arrays, candidate="tanh")
                return (h * pull).sum() + (last * pull_last).sum()

            backward = vjp(*arrays, candidate="tanh")[2]
            got = backward(pull, pull_last)
            again = backward(pull, pull_last)
            for name, array in zip(("x", "weight", "bias", "h0"), arrays):
                self.differences(loss, array, got[name], name)
                np.testing.assert_array_equal(got[name], again[name])

    def differences(self, loss, array, gradient, name):
        for i in np.ndindex(array.shape):
            kept, step = array[i], 1e-6
            array[i] = kept + step
            above = loss()
            array[i] = kept - step
            slope = (above - loss()) / (2 * step)
            array[i] = kept
            self.assertTrue(abs(slope - gradient[i]) <= 1e-6 * max(1, abs(slope)), f"{name}{i}")

    def test_scan_gradients_are_differences(self):
        a, b, h0 = (self.draw(*s, dtype=np.float64) * 0.7 for s in ((2, 5, 3), (2, 5, 3), (2, 3)))
        pull, pull_last = self.draw(2, 5, 3, dtype=np.float64), self.draw(2, 3, dtype=np.float64)

        def loss():
            h, last, _ = minrnn.scan_vjp(a, b, h0)
            return (h * pull).sum() + (last * pull_last).sum()

        for array, gradient in zip((a, b, h0), minrnn.scan_vjp(a, b, h0)[2](pull, pull_last)):
            self.differences(loss, array, gradient, "scan")

    def test_any_layout_and_type(self):
        a, b = self.draw(4, 6, 8) * 0.5, self.draw(4, 6, 8)
        want = minrnn.scan(a, b)
        np.testing.assert_array_equal(minrnn.scan(np.asfortranarray(a), b), want)
        np.testing.assert_array_equal(minrnn.scan(a[::2], b[::2]), want[::2])
        self.near(minrnn.scan(a.astype(np.float64), b.astype(np.float64)), want, 1e-5)
        self.assertEqual(minrnn.scan(a.astype(np.float64), b.astype(np.float64)).dtype, np.float64)
        self.assertEqual(minrnn.scan(np.ones((2, 1), int), np.ones((2, 1), int)).tolist(), [[1], [2]])

    def test_nothing_gives_nothing(self):
        self.assertEqual(minrnn.scan(np.ones((0, 3, 2), np.float32), np.ones((0, 3, 2), np.float32)).shape, (0, 3, 2))
        h, last = minrnn.mingru(np.ones((2, 0, 3), np.float32), np.ones((8, 3), np.float32))
        self.assertEqual((h.shape, last.tolist()), ((2, 0, 4), [[0] * 4] * 2))

    def test_errors_name_the_argument(self):
        a = np.ones((2, 3, 4), np.float32)
        for name, call in (
                ("a", lambda: minrnn.scan(a[:, :2], a)),
                ("h0", lambda: minrnn.scan(a, a, a[0])),
                ("reset", lambda: minrnn.scan(a, a, reset=np.zeros((2, 4)))),
                ("length", lambda: minrnn.scan(a, a, length=[4, 3])),
                ("length", lambda: minrnn.scan(a, a, length=[-1, 3])),
                ("b", lambda: minrnn.scan(a[0, 0], a[0, 0])),
                ("x", lambda: minrnn.mingru(a, np.ones((7, 4), np.float32))),
                ("bias", lambda: minrnn.mingru(a, np.ones((8, 4), np.float32), np.ones(7))),
                ("candidate", lambda: minrnn.mingru(a, np.ones((8, 4), np.float32), candidate="relu"))):
            with self.assertRaisesRegex(minrnn.InvalidArgument, f"^{name}: "):
                call()
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^a: a masked array"):
            minrnn.scan(np.ma.array(a, mask=True), a)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^b: must be numbers"):
            minrnn.scan(a, np.array([["x"]]))

    def test_a_feature_is_needed(self):
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^x: .*one feature or more"):
            minrnn.mingru(np.zeros((2, 6, 0)), np.zeros((8, 0)), np.ones(8))

    def test_no_tokens_leave_the_first_state(self):
        for candidate, value in CANDIDATE.items():
            for dtype in np.float32, np.float64:
                x, weight, h_init = (self.draw(*s, dtype=dtype) for s in ((2, 0, 3), (8, 3), (4,)))
                h0, pull = self.draw(2, 4, dtype=dtype), self.draw(2, 4, dtype=dtype)
                h, last, backward = minrnn.mingru_vjp(x, weight, h_init=h_init, candidate=candidate)
                self.assertEqual(h.shape, (2, 0, 4))
                self.near(last, np.stack([value(h_init)] * 2), 1e-6)
                slope = (value(h_init.astype(float) + 1e-6) - value(h_init.astype(float) - 1e-6)) / 2e-6
                self.near(backward(h, pull)["h_init"], pull.sum(0) * slope, 1e-5)
                self.assertFalse(backward(h)["h_init"].any())
                h, last, backward = minrnn.mingru_vjp(x, weight, h0=h0, h_init=h_init, candidate=candidate)
                np.testing.assert_array_equal(last, h0)
                np.testing.assert_array_equal(backward(h, pull)["h0"], pull)
                self.assertFalse(backward(h, pull)["h_init"].any())

    def test_padding_may_hold_anything(self):
        length = np.array([6, 3, 0], np.int32)
        padding = np.arange(6) >= length[:, None]
        for vjp, gates in (minrnn.mingru_vjp, 2), (minrnn.minlstm_vjp, 3):
            for dtype in np.float32, np.float64:
                clean, weight, bias = (self.draw(*s, dtype=dtype) for s in ((3, 6, 5), (gates * 4, 5), (gates * 4,)))
                pull, h0, h_init = (self.draw(*s, dtype=dtype) for s in ((3, 6, 4), (3, 4), (4,)))
                clean[padding] = 0
                want = vjp(clean, weight, bias, h0, h_init=h_init, length=length)
                for what in np.nan, np.inf, 3e38:
                    x, dh = clean.copy(), pull.copy()
                    x[padding] = dh[padding] = what
                    got = vjp(x, weight, bias, h0, h_init=h_init, length=length)
                    for i in range(2):
                        np.testing.assert_array_equal(got[i], want[i])
                    gradients = want[2](pull)
                    for name, gradient in got[2](dh).items():
                        np.testing.assert_array_equal(gradient, gradients[name], f"{name} {what}")
                    self.assertTrue((x[padding] == what).all() or np.isnan(what))

    def test_arrays_that_are_not_aligned(self):
        a = np.zeros(49, "u1")[1:].view("f4").reshape(1, 4, 3)
        a[...] = self.draw(1, 4, 3)
        self.assertFalse(a.flags.aligned)
        np.testing.assert_array_equal(minrnn.scan(a, a), minrnn.scan(a.copy(), a.copy()))
        np.testing.assert_array_equal(minrnn.mingru(a, a[0, :2])[0], minrnn.mingru(a.copy(), a[0, :2].copy())[0])

    def test_masks_of_other_libraries(self):
        class Other:  # an array that speaks DLPack alone
            def __init__(self, x):
                self.x = x

            def __dlpack__(self, **how):
                return self.x.__dlpack__(**how)

            def __dlpack_device__(self):
                return self.x.__dlpack_device__()

        a, reset, length = self.draw(2, 5, 3), np.array([[0, 1, 0, 1, 0]] * 2, np.uint8), np.array([5, 2], np.int32)
        np.testing.assert_array_equal(minrnn.scan(a, a, reset=Other(reset), length=Other(length)),
                                      minrnn.scan(a, a, reset=reset, length=length))
        np.testing.assert_array_equal(minrnn.scan(a[0], a[0], reset=Other(reset[0]), length=4),
                                      minrnn.scan(a[0], a[0], reset=reset[0], length=[4]))

    def test_arrays_on_a_gpu_need_torch(self):
        class OnGpu:
            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, **how):
                raise AssertionError("must not be asked")

        with unittest.mock.patch.dict(sys.modules, {"torch": None}):
            with self.assertRaisesRegex(minrnn.InvalidArgument, "GPU needs PyTorch, .*pip install torch"):
                minrnn.scan(OnGpu(), OnGpu())

    def test_children_compute_too(self):
        a = self.draw(8, 200, 64) * 0.5
        want = minrnn.scan(a, a)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for got in pool.starmap(minrnn.scan, [(a, a)] * 4, chunksize=1):
                np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(minrnn.scan(a, a), want)


if __name__ == "__main__":
    unittest.main()
