"""The scan and the cells on NumPy arrays: against plain loops in float64, with gradients against differences."""
import multiprocessing
import unittest

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
            with self.assertRaisesRegex(ValueError, f"^{name}: "):
                call()
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^a: a masked array"):
            minrnn.scan(np.ma.array(a, mask=True), a)
        with self.assertRaisesRegex(TypeError, "^b: must be numbers"):
            minrnn.scan(a, np.array([["x"]]))

    def test_children_compute_too(self):
        a = self.draw(8, 200, 64) * 0.5
        want = minrnn.scan(a, a)
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for got in pool.starmap(minrnn.scan, [(a, a)] * 4, chunksize=1):
                np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(minrnn.scan(a, a), want)


if __name__ == "__main__":
    unittest.main()
