"""Arrays, types and memory that the extension borrows or takes: it gives all of them back, also when a call fails."""
import gc
import os
import sys
import unittest
from unittest import mock

import numpy as np

import minrnn
from minrnn import _core, scans


def memory():
    """Bytes that this process has in memory."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def failing(call):
    def run():
        try:
            call()
        except (ValueError, TypeError, KeyError):
            return
        raise AssertionError("it did not fail")
    return run


class References(unittest.TestCase):
    def given_back(self, objects, **calls):
        """No call keeps a reference to one of the objects."""
        for name, call in calls.items():
            call()
            before = [sys.getrefcount(x) for x in objects]
            for _ in range(5):
                call()
            self.assertEqual([sys.getrefcount(x) for x in objects], before, name)

    def test_arrays_of_scans_and_cells(self):
        x, weight, bias = np.ones((2, 5, 3), np.float32), np.ones((8, 3), np.float32), np.ones(8, np.float32)
        h0, h_init, a = np.ones((2, 4), np.float32), np.ones(4, np.float32), np.ones((2, 5, 4), np.float32)
        reset, length, short = np.zeros((2, 5), np.uint8), np.array([5, 4], np.int32), np.ones(3, np.float32)
        masks = {"reset": reset, "length": length}
        raw = 0, 0, 2, 5, 4, 0  # forward, of floats, B, T, H, no stream of a GPU
        self.given_back(
            (x, weight, bias, h0, h_init, a, reset, length, short),
            scan=lambda: scans.scan(a, a, h0, return_state=True, **masks),
            scan_vjp=lambda: scans.scan_vjp(a, a, h0, **masks)[2](a, h0),
            mingru=lambda: scans.mingru(x, weight, bias, h0, h_init=h_init, **masks),
            mingru_vjp=lambda: scans.mingru_vjp(x, weight, bias, h0, h_init=h_init, **masks)[2](a, h0),
            wrong=failing(lambda: _core.raw_scan(minrnn.context(), *raw, a, a, h0, reset, length, short, *[None] * 6, 0,
                                                 0)),
            count=failing(lambda: _core.raw_scan(minrnn.context(), *raw, a)))

    def test_arrays_of_models(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8)
        reals = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", layers=1, dim=8)
        net, stream, ids, short = model._net, model.stream()._core, np.zeros((2, 4), np.int32), np.ones(3, np.float32)
        values, mask = np.ones((2, 4, 2), np.float32), np.ones((2, 4), np.uint8)
        weights, tokens, out = np.ones((256, 8), np.float32), np.zeros(4, np.int32), np.empty(256, np.float32)
        dscores, pair, one = np.zeros((2, 4, 256), np.float32), np.ones(2), np.ones(1)
        two, targets = np.array([4, 3], np.int32), np.ones((2, 4, 1), np.float32)
        ended = np.array([[1, 1, 1, 1], [1, 1, 1, -1]], np.int32)

        def batch(**arrays):
            names = "ids", "values", "reset", "length", "target", "target_values", "mask"
            return 2, 4, *(arrays.get(name) for name in names)

        def own_loss():
            net.run(1, batch(ids=ids), dscores)
            net.backward(dscores, dscores.size)
            model.drop()
        self.given_back(
            (ids, short, values, mask, weights, tokens, out, dscores, pair, one, two, targets, ended, net, stream),
            learn=lambda: net.learn(1, batch(ids=ids, target=ids, reset=mask), 0, 1, False, 0.0),
            length=lambda: net.learn(1, batch(ids=ids, target=ended, length=two), 0, 1, False, 0.0),
            learn_refused=failing(lambda: net.learn(0, batch(ids=ids, target=ids + 999), 0, 1, False, 0.0)),
            batch_refused=failing(lambda: net.learn(0, batch(ids=ids, target=ids, mask=short), 0, 1, False, 0.0)),
            out_refused=failing(lambda: net.run(0, batch(ids=ids), short)), own_loss=own_loss,
            fit_scaler=lambda: reals._net.fit_scaler(batch(values=values, target_values=targets)),
            get=lambda: net.get(0, "head.weight", weights), put=lambda: net.put(0, "head.weight", weights),
            put_refused=failing(lambda: net.put(0, "head.weight", short)),
            scaler_refused=failing(lambda: reals._net.scaler(pair, pair, one, pair)),
            set_scaler=lambda: reals._net.set_scaler(pair, pair, one, one), decode=lambda: net.decode(tokens, 4),
            step=lambda: stream.step(1, out), feed=lambda: stream.feed(tokens, 4, False, out),
            feed_refused=failing(lambda: stream.feed(tokens, 4, False, short)),
            sample=lambda: stream.sample(tokens, 4, tokens, 4, 1.0, 1.0, 0, 1, 0),
            score=lambda: stream.score(tokens, tokens, 4, np.empty(4, np.float32)),
            score_refused=failing(lambda: stream.score(tokens, tokens, 4, short)))

    def test_objects_and_their_types(self):
        place, kinds = minrnn.context("cpu", 2), (_core.Context, _core.Net, _core.Stream, _core.View)
        model = minrnn.Model(vocab="bytes", layers=1, dim=8, threads=2)
        self.given_back((place, model._net, *kinds), context=lambda: _core.context_new("cpu", 1, False, False),
                        no_context=failing(lambda: _core.context_new("none", 1, False, False)),
                        net=lambda: minrnn.Model(vocab="bytes", layers=1, dim=8, threads=2),
                        no_net=failing(lambda: _core.net_create(place, ["dim", "0"])),
                        no_text=failing(lambda: _core.net_create(place, ["dim", 5])),
                        no_file=failing(lambda: _core.net_open_bytes(place, b"no model")),
                        stream=lambda: model.stream().clone(), view=lambda: model.tensor("head.weight").sum())

    def test_a_view_outlives_its_model(self):
        view = minrnn.Model(vocab="bytes", layers=1, dim=8, seed=2).tensor("head.weight")
        want = minrnn.Model(vocab="bytes", layers=1, dim=8, seed=2).tensor("head.weight", copy=True)
        gc.collect()
        for _ in range(20):
            minrnn.Model(vocab="bytes", layers=1, dim=8, seed=3)
        np.testing.assert_array_equal(view, want)

    def growth(self, call, times):
        """Bytes, and objects of Python, that are there after so many calls and were not before."""
        size, blocks = memory(), sys.getallocatedblocks()
        for _ in range(times):
            call()
        return memory() - size, sys.getallocatedblocks() - blocks

    @unittest.skipIf("libasan" in os.environ.get("LD_PRELOAD", ""), "AddressSanitizer keeps what is freed for a while")
    @unittest.skipUnless(os.path.exists("/proc/self/statm"), "there is no /proc here")
    def test_memory(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=64, threads=1)
        stream, reals = model.stream(), minrnn.Model(input="reals", inputs=1, outputs=2, layers=1, dim=8)
        x, weight, long, many = np.ones((4, 1000, 8), np.float32), np.ones((128, 8), np.float32), b"a" * 100_000, 20_000

        def cells():
            with mock.patch("minrnn.scans.context", lambda _: _core.context_new("cpu", 1, False, False)):
                scans.mingru(x, weight)
        calls = {"rooms of a context": (cells, 12), "decode": (lambda: model.decode(model.encode(long)), 60),
                 "save": (lambda: stream.save(), many), "config": (lambda: model.config, 200),
                 "keys": (_core.keys, 300), "refused": (failing(lambda: stream.load(b"x")), many),
                 "refused text": (failing(lambda: reals.encode(long)), 60),
                 "refused settings": (failing(lambda: _core.net_create(minrnn.context(), ["a"] * 20_001)), 60),
                 "half a text": (failing(lambda: model._net.encode(5)), many)}
        for name, (call, times) in calls.items():
            for _ in range(times // 4):
                call()
            rounds = (self.growth(call, times) for _ in range(3))  # something else may take memory meanwhile
            self.assertTrue(any(size < 3_000_000 and blocks < times / 2 for size, blocks in rounds), name)


if __name__ == "__main__":
    unittest.main()
