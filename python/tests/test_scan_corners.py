"""Scans and cells where no test looked: gradients of all arguments, masks of one sequence, nothing at all."""
import unittest
from unittest import mock

import numpy as np
from test_scans import Scans, plain_cell

import minrnn


class ScanCorners(unittest.TestCase):
    setUp, draw, near, differences = Scans.setUp, Scans.draw, Scans.near, Scans.differences

    def masks(self):
        reset = np.zeros((3, 5), np.uint8)
        reset[0, 2] = reset[1, 0] = reset[1, 3] = 1
        return {"reset": reset, "length": np.array([5, 4, 0], np.int32)}

    def test_wide_floats_are_exact_in_any_form(self):
        a, b = self.draw(3, 5, 2, dtype=np.float64), self.draw(3, 5, 2, dtype=np.float64)
        want = minrnn.scan(a, b)
        for dtype in ">f8", "<f8", np.longdouble:
            got = minrnn.scan(a, b.astype(dtype))
            self.assertEqual(got.dtype, np.float64)
            np.testing.assert_array_equal(got, want)
        for dtype in ">f4", np.float16, np.int64:
            self.assertEqual(minrnn.scan(a, b.astype(dtype)).dtype, np.float32)

    def test_one_array_on_a_gpu_is_enough(self):
        class Far:
            """An array on a GPU."""
            def __dlpack_device__(self):
                return 2, 0

            def __dlpack__(self, **_):
                raise AssertionError("its memory was asked for")

        here = np.zeros((1, 2, 3), np.float32)
        with mock.patch("minrnn.scans._tensors", side_effect=StopIteration):
            for a, b in (Far(), here), (here, Far()), (Far(), Far()):
                with self.assertRaises(StopIteration):
                    minrnn.scan(a, b)
            with self.assertRaises(StopIteration):
                minrnn.mingru(Far(), here[0])

    def test_gradients_with_all_arguments_are_differences(self):
        for kind, vjp, gates in ("mingru", minrnn.mingru_vjp, 2), ("minlstm", minrnn.minlstm_vjp, 3):
            for more in {"signed": True}, {"normalize": False}:
                if kind == "mingru" and "normalize" in more:
                    continue
                shapes = (3, 5, 2), (gates * 3, 2), (gates * 3,), (3, 3), (3,)
                arrays = [self.draw(*shape, dtype=np.float64) for shape in shapes]
                pull, pull_last = self.draw(3, 5, 3, dtype=np.float64), self.draw(3, 3, dtype=np.float64)
                masks = self.masks()

                def run():
                    return vjp(*arrays[:4], h_init=arrays[4], candidate="tanh", **masks, **more)

                def loss():
                    h, last, _ = run()
                    return (h * pull).sum() + (last * pull_last).sum()

                h, last, backward = run()
                how = {"normalize": True, "signed": False, **more}
                want = plain_cell(kind, *arrays, **masks, candidate="tanh", **how)
                self.near(h, want[0], 1e-12, f"{kind} {more}")
                self.near(last, want[1], 1e-12, f"{kind} {more}")
                got = backward(pull, pull_last)
                for name, array in zip(("x", "weight", "bias", "h0", "h_init"), arrays):
                    self.differences(loss, array, got[name], name)

    def test_scan_gradients_with_masks_are_differences(self):
        for batched in True, False:
            shapes = ((3, 5, 2), (3, 5, 2), (3, 2)) if batched else ((5, 2), (5, 2), (2,))
            arrays = [self.draw(*shape, dtype=np.float64) * 0.7 for shape in shapes]
            masks = self.masks() if batched else {"reset": [0, 0, 1, 0, 0], "length": 4}
            pull, pull_last = self.draw(*shapes[0], dtype=np.float64), self.draw(*shapes[2], dtype=np.float64)

            def loss():
                h, last, _ = minrnn.scan_vjp(*arrays, **masks)
                return (h * pull).sum() + (last * pull_last).sum()

            for array, gradient in zip(arrays, minrnn.scan_vjp(*arrays, **masks)[2](pull, pull_last)):
                self.differences(loss, array, gradient, "scan")

    def test_one_sequence_with_masks(self):
        a, b, h0 = self.draw(6, 3) * 0.5, self.draw(6, 3), self.draw(3)
        reset = np.array([0, 0, 1, 0, 0, 0], np.uint8)
        h, last = minrnn.scan(a, b, h0, reset=reset, length=4, return_state=True)
        want = minrnn.scan(a[None], b[None], h0[None], reset=reset[None], length=[4], return_state=True)
        np.testing.assert_array_equal(h, want[0][0])
        np.testing.assert_array_equal(last, want[1][0])
        np.testing.assert_array_equal(last, minrnn.scan(a[2:4], b[2:4])[-1])

    def test_nothing_keeps_the_state(self):
        h0, nothing = self.draw(2, 4), np.ones((2, 0, 4), np.float32)
        dh0 = self.draw(2, 4)
        _, last = minrnn.scan(nothing, nothing, h0, return_state=True)
        np.testing.assert_array_equal(last, h0)
        np.testing.assert_array_equal(minrnn.scan(nothing, nothing, return_state=True)[1], 0)
        _, last, backward = minrnn.scan_vjp(nothing, nothing, h0)
        np.testing.assert_array_equal(backward(nothing, dh0)[2], dh0)
        np.testing.assert_array_equal(backward(nothing)[2], 0)
        x, weight = np.ones((2, 0, 3), np.float32), self.draw(8, 3)
        np.testing.assert_array_equal(minrnn.mingru(x, weight, None, h0)[1], h0)
        _, last, backward = minrnn.mingru_vjp(x, weight, None, h0)
        got = backward(nothing, dh0)
        np.testing.assert_array_equal(last, h0)
        np.testing.assert_array_equal(got["h0"], dh0)
        np.testing.assert_array_equal(got["weight"], 0)

    def test_workspaces_of_growing_calls(self):
        """A workspace of an earlier call is used again where it is large enough, and not where it nearly is."""
        x, weight = self.draw(1, 80, 2), self.draw(16, 2)
        fresh = minrnn._core.context_new("cpu", 1, False, False)
        with mock.patch("minrnn.scans.context", lambda _: fresh):
            parts = [minrnn.mingru(x[:, :T], weight)[0] for T in range(1, 81)]
        for T, part in enumerate(parts, 1):
            self.near(part, parts[-1][:, :T], 1e-5)

    def test_numbers_of_other_kinds(self):
        a, b = self.draw(2, 5, 3) * 0.5, self.draw(2, 5, 3)
        want = minrnn.scan(a, b)
        np.testing.assert_array_equal(minrnn.scan(a.astype(">f4"), b.astype(">f4")), want)
        half = a.astype(np.float16), b.astype(np.float16)
        np.testing.assert_array_equal(minrnn.scan(*half), minrnn.scan(*(x.astype(np.float32) for x in half)))


if __name__ == "__main__":
    unittest.main()
