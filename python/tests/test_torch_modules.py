"""MinGRU and MinLSTM as nn.GRU and nn.LSTM are used."""
import copy
import pickle
import unittest
import warnings

import numpy as np
from torch_support import loop, torch

from minrnn.torch import MinGRU, MinLSTM, from_lucidrains, from_model, to_model

KINDS = ((MinGRU, "mingru"), (MinLSTM, "minlstm"))


def state(last):
    return last[0] if isinstance(last, tuple) else last


def by_hand(module, x, h0=None, reset=None, kind="mingru"):
    """All layers with a loop over time, in nn.GRU's layout of states; x [batch, time, features]."""
    lasts, place, flip = [], 0, (lambda v: v.flip(1))
    back = None if reset is None else flip(torch.cat([reset[:, 1:], torch.zeros_like(reset[:, :1])], 1))
    for layer in range(module.num_layers):
        outputs = []
        for suffix in ("", "_reverse")[:1 + module.bidirectional]:
            weight, bias = getattr(module, f"weight_l{layer}{suffix}"), getattr(module, f"bias_l{layer}{suffix}", None)
            first = None if h0 is None else h0[place]
            h, last = loop(flip(x) if suffix else x, weight, bias, first, None, back if suffix else reset, kind=kind)
            outputs.append(flip(h) if suffix else h)
            lasts.append(last)
            place += 1
        x = torch.cat(outputs, 2)
    return x, torch.stack(lasts)


class Layers(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_against_loops_with_all_gradients(self):
        for module, kind in KINDS:
            for both in (False, True):
                with self.subTest(kind=kind, bidirectional=both):
                    m = module(3, 4, 2, bidirectional=both, batch_first=True, dtype=torch.float64)
                    x = torch.randn(3, 8, 3, dtype=torch.float64, requires_grad=True)
                    h0 = torch.rand(4 if both else 2, 3, 4, dtype=torch.float64, requires_grad=True)
                    reset = torch.zeros(3, 8, dtype=torch.bool)
                    reset[0, 4] = reset[1, 1] = reset[1, 6] = True
                    leaves = [x, h0, *m.parameters()]
                    y, last = m(x, h0, reset=reset)
                    y2, last2 = by_hand(m, x, h0, reset, kind)
                    self.assertTrue(torch.allclose(y, y2, rtol=0, atol=1e-12))
                    self.assertTrue(torch.allclose(state(last), last2, rtol=0, atol=1e-12))
                    ours = torch.autograd.grad(y.square().sum() + state(last).sum(), leaves)
                    theirs = torch.autograd.grad(y2.square().sum() + last2.sum(), leaves)
                    for a, b in zip(ours, theirs):
                        self.assertTrue(torch.allclose(a, b, rtol=1e-9, atol=1e-11))

    def test_a_reset_half_way_is_two_sequences(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2, bidirectional=True), torch.randn(10, 2, 3)
            reset = torch.zeros(10, 2, dtype=torch.bool)
            reset[5] = True
            whole = m(x, reset=reset)[0]
            parts = torch.cat([m(x[:5])[0], m(x[5:])[0]])
            self.assertTrue(torch.allclose(whole, parts, rtol=0, atol=1e-6))
            self.assertFalse(torch.allclose(m(x)[0], parts, rtol=0, atol=1e-3))

    def test_step_by_step(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2), torch.randn(12, 2, 3)
            y, last = m(x)
            h, steps = None, []
            for token in x:
                out, h = m.step(token, h)
                steps.append(out)
            self.assertTrue(torch.allclose(torch.stack(steps), y, rtol=0, atol=1e-5))
            self.assertTrue(torch.allclose(state(h), state(last), rtol=0, atol=1e-5))
            one, _ = m.step(x[0, 0])
            self.assertTrue(torch.allclose(one, y[0, 0], rtol=0, atol=1e-6))

    def test_chunks_go_on(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2), torch.randn(12, 2, 3)
            first, h = m(x[:5])
            second, h = m(x[5:], h)
            y, last = m(x)
            self.assertTrue(torch.allclose(torch.cat([first, second]), y, rtol=0, atol=1e-5))
            self.assertTrue(torch.allclose(state(h), state(last), rtol=0, atol=1e-5))

    def test_layouts_are_those_of_pytorch(self):
        for ours, theirs in ((MinGRU, torch.nn.GRU), (MinLSTM, torch.nn.LSTM)):
            for options in ({}, {"num_layers": 3}, {"batch_first": True}, {"bidirectional": True, "num_layers": 2}):
                a, b = ours(3, 4, **options), theirs(3, 4, **options)
                for x in (torch.randn(5, 2, 3), torch.randn(5, 3)):
                    (y, h), (y2, h2) = a(x), b(x)
                    self.assertEqual((y.shape, state(h).shape), (y2.shape, state(h2).shape))
                    self.assertEqual(a(x, h)[0].shape, b(x, h2)[0].shape)

    def test_without_a_batch(self):
        m, x = MinGRU(3, 4, 2), torch.randn(6, 3)
        y, h = m(x)
        y2, h2 = m(x.unsqueeze(1))
        self.assertTrue(torch.equal(y, y2[:, 0]) and torch.equal(h, h2[:, 0]))

    def test_dropout_between_layers(self):
        m = MinGRU(200, 300, 2, dropout=0.25, batch_first=True)
        bare = MinGRU(200, 300, 2, batch_first=True)
        bare.load_state_dict(m.state_dict())
        x, seen = torch.randn(4, 50, 200), []
        hidden, inner = m._one, lambda x, *rest: (seen.append(x), hidden(x, *rest))[1]
        m._one = inner
        y = m(x)[0]
        share = (seen[1] == 0).float().mean().item()  # a positive candidate has no zeros of its own
        self.assertTrue(abs(share - 0.25) < 0.01, share)
        self.assertFalse(torch.allclose(y, bare(x)[0]))
        m.eval()
        self.assertTrue(torch.equal(m(x)[0], bare(x)[0]))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            MinGRU(2, 2, dropout=0.5), MinLSTM(2, 2, dropout=0.5)
        self.assertEqual([("dropout" in str(w.message), w.filename) for w in caught], [(True, __file__)] * 2)

    def test_parameters(self):
        m = MinLSTM(3, 4, 2, bidirectional=True)
        shapes = {name: tuple(p.shape) for name, p in m.named_parameters()}
        self.assertEqual(shapes["weight_l0"], (12, 3))
        self.assertEqual(shapes["weight_l1_reverse"], (12, 8))
        self.assertEqual(shapes["bias_l1"], (12,))
        self.assertEqual(len(shapes), 8)
        self.assertTrue(all(p.abs().max() <= 0.5 for p in m.parameters()))
        self.assertEqual(len(list(MinGRU(3, 4, bias=False).parameters())), 1)
        by_place = MinLSTM(3, 4, 1, True, False, 0.0, False, 0, "cpu", torch.float64)  # in the order of nn.LSTM
        self.assertEqual(by_place.weight_l0.dtype, torch.float64)
        self.assertEqual(MinGRU(np.int64(3), np.int32(4)).weight_l0.shape, (8, 3))
        self.assertEqual([len(w) for w in m.all_weights], [2, 2, 2, 2])
        self.assertTrue((MinGRU(3, 4, forget_bias=2.0).bias_l0[:4] == -2).all())
        self.assertTrue((MinLSTM(3, 4, forget_bias=2.0).bias_l0[:4] == 2).all())
        self.assertEqual(repr(MinLSTM(3, 4, 2, batch_first=True, normalize=False)),
                         "MinLSTM(3, 4, num_layers=2, batch_first=True, normalize=False)")

    def test_a_longer_memory_by_the_bias(self):
        for module, _ in KINDS:
            x, short, long = torch.randn(50, 1, 3), module(3, 4, forget_bias=-4.0), module(3, 4, forget_bias=4.0)
            h0 = torch.full((1, 1, 4), 5.0)
            effect = [(m(x, h0)[0] - m(x)[0])[20].abs().max().item() for m in (short, long)]
            self.assertLess(100 * effect[0], effect[1])

    def test_copies(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2), torch.randn(5, 2, 3)
            y = m(x)[0]
            y.sum().backward()
            for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
                self.assertTrue(torch.equal(other(x)[0], y))
            empty = module(3, 4, 2)
            empty.load_state_dict(m.state_dict())
            self.assertTrue(torch.equal(empty(x)[0], y))

    def test_lstm_states(self):
        m, x = MinLSTM(3, 4), torch.randn(5, 2, 3)
        y, (h, c) = m(x)
        self.assertIs(h, c)
        self.assertTrue(torch.equal(m(x, (h, c))[0], m(x, h)[0]))
        with self.assertRaisesRegex(ValueError, "c_0: has the shape"):
            m(x, (h, c[:, :1]))


class Packed(unittest.TestCase):
    def test_like_each_sequence_alone(self):
        torch.manual_seed(1)
        for module, _ in KINDS:
            for options in ({}, {"bidirectional": True, "num_layers": 2}):
                m = module(3, 4, **options)
                parts = [torch.randn(n, 3) for n in (3, 7, 1, 5)]
                h0 = torch.rand(m.num_layers * (1 + m.bidirectional), 4, 4)
                packed = torch.nn.utils.rnn.pack_sequence(parts, enforce_sorted=False)
                y, last = m(packed, h0)
                out, lengths = torch.nn.utils.rnn.pad_packed_sequence(y)
                out.sum().backward()
                grad = m.weight_l0.grad.clone()
                m.zero_grad()
                for i, part in enumerate(parts):
                    alone, end = m(part, h0[:, i])
                    alone.sum().backward()
                    self.assertTrue(torch.allclose(out[:len(part), i], alone, rtol=0, atol=1e-6))
                    self.assertTrue(torch.allclose(state(last)[:, i], state(end), rtol=0, atol=1e-6))
                self.assertTrue(torch.allclose(grad, m.weight_l0.grad, rtol=1e-4, atol=1e-5))
                padded = torch.nn.utils.rnn.pad_sequence(parts)
                by_length, end = m(padded, h0, length=lengths)
                self.assertTrue(torch.allclose(by_length, out, rtol=0, atol=1e-6))
                self.assertTrue(torch.allclose(state(end), state(last), rtol=0, atol=1e-6))


class Refusals(unittest.TestCase):
    def test_by_name(self):
        x, m = torch.randn(5, 2, 3), MinGRU(3, 4)
        packed = torch.nn.utils.rnn.pack_sequence([torch.randn(3, 3)])
        for error, pattern, call in (
                (ValueError, "^proj_size", lambda: MinLSTM(3, 4, proj_size=2)),
                (ValueError, "^proj_size", lambda: MinGRU(3, 4, 1, True, False, 0.0, False, 2)),
                (ValueError, "^proj_size", lambda: MinGRU(3, 4, proj_size="cpu")),
                (TypeError, "^nonlinearity", lambda: MinGRU(3, 4, nonlinearity="relu")),
                (ValueError, "^hidden_size", lambda: MinGRU(3, 0)),
                (ValueError, "^num_layers", lambda: MinGRU(3, 4, True)),
                (ValueError, "^dropout", lambda: MinGRU(3, 4, 2, dropout=1.5)),
                (ValueError, "^dropout", lambda: MinGRU(3, 4, 2, dropout="0.1")),
                (ValueError, "^input: is torch.sparse_coo", lambda: m(x.to_sparse())),
                (ValueError, "^candidate", lambda: MinGRU(3, 4, candidate="relu")),
                (ValueError, "^forget_bias", lambda: MinGRU(3, 4, bias=False, forget_bias=1.0)),
                (ValueError, "^forget_bias", lambda: MinGRU(3, 4, forget_bias=True)),
                (ValueError, "^input: has 4 dim", lambda: m(x[None])),
                (ValueError, "^input: has 2 features", lambda: m(x[..., :2])),
                (TypeError, "^input: is torch.float64", lambda: m(x.double())),
                (ValueError, "^input: is on meta", lambda: m(x.to("meta"))),
                (TypeError, "^input: must be a tensor", lambda: m([1.0])),
                (ValueError, "^h_0: has the shape", lambda: m(x, torch.zeros(2, 2, 4))),
                (ValueError, "^h_0: is on meta", lambda: m(x, torch.zeros(1, 2, 4, device="meta"))),
                (ValueError, "^h_0: has 3 dimensions", lambda: m(x[0], torch.zeros(1, 2, 4))),
                (ValueError, "^reset: a PackedSequence", lambda: m(packed, reset=torch.zeros(3, 1))),
                (ValueError, "^length: a PackedSequence", lambda: m(packed, length=torch.zeros(1))),
                (ValueError, "^hx: has 3 tensors", lambda: MinLSTM(3, 4)(x, (1, 2, 3))),
                (ValueError, "^h_0: is None", lambda: MinLSTM(3, 4)(x, (None, torch.zeros(1, 2, 4)))),
                (ValueError, "^step: a bidirectional", lambda: MinGRU(3, 4, bidirectional=True).step(x[0])),
                (ValueError, "^source: has the tensors", lambda: from_lucidrains(m)),
                (ValueError, "^layer: a block holds one", lambda: to_model(MinGRU(3, 4, 2))),
                (ValueError, "^layer: a block holds one", lambda: to_model(MinGRU(3, 4, bidirectional=True))),
                (ValueError, "^model: blocks.7.mixer", lambda: from_model({}, 7))):
            with self.subTest(pattern=pattern), self.assertRaisesRegex(error, pattern):
                call()


class Corners(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def test_dropout_leaves_the_input_alone(self):
        m, x, seen = MinGRU(20, 30, 3, dropout=0.5, batch_first=True), torch.randn(4, 9, 20), []
        inner = m._one
        m._one = lambda x, *rest: (seen.append(x), inner(x, *rest))[1]
        y = m(x)[0]
        self.assertTrue(torch.equal(seen[0], x))
        self.assertTrue((seen[1] == 0).any() and (seen[2] == 0).any() and not (y == 0).any())

    def test_resets_and_lengths_in_both_directions(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2, bidirectional=True, batch_first=True), torch.randn(2, 9, 3)
            reset, length = torch.zeros(2, 9, dtype=torch.bool), torch.tensor([6, 9])
            reset[0, 4] = reset[1, 3] = True
            y, last = m(x, reset=reset, length=length)
            for row, n in enumerate(length.tolist()):
                alone, end = m(x[row:row + 1, :n], reset=reset[row:row + 1, :n])
                self.assertTrue(torch.allclose(y[row:row + 1, :n], alone, rtol=0, atol=1e-6))
                self.assertTrue(torch.allclose(state(last)[:, row:row + 1], state(end), rtol=0, atol=1e-6))
                self.assertTrue((y[row, n:] == 0).all())

    def test_masks_without_a_batch(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2), torch.randn(9, 3)
            reset, h0 = torch.zeros(9, dtype=torch.bool), torch.rand(2, 4)
            reset[4] = True
            for length in (torch.tensor(7), torch.tensor([7])):
                y, last = m(x, h0, reset=reset, length=length)
                y2, last2 = m(x[:, None], h0[:, None], reset=reset[:, None], length=torch.tensor([7]))
                self.assertTrue(torch.equal(y, y2[:, 0]) and torch.equal(state(last), state(last2)[:, 0]))
            self.assertTrue((y[7:] == 0).all() and torch.allclose(y[4:7], m(x[4:7])[0], rtol=0, atol=1e-6))

    def test_step_by_step_without_a_batch(self):
        for module, _ in KINDS:
            m, x = module(3, 4, 2), torch.randn(12, 3)
            y, last = m(x)
            h, steps = None, []
            for token in x:
                out, h = m.step(token, h)
                self.assertEqual(state(h).shape, state(last).shape)
                steps.append(out)
            self.assertTrue(torch.allclose(torch.stack(steps), y, rtol=0, atol=1e-5))
            self.assertTrue(torch.allclose(state(h), state(last), rtol=0, atol=1e-5))

    def test_states_have_the_dtype_of_the_first(self):
        m, x = MinGRU(3, 4, dtype=torch.bfloat16), torch.randn(5, 2, 3).bfloat16()
        self.assertEqual(m(x)[1].dtype, torch.bfloat16)
        self.assertEqual(m(x, torch.zeros(1, 2, 4))[1].dtype, torch.float32)

    def test_options_reach_every_cell(self):
        for module, kind in KINDS:
            for more in ({"signed": True}, {"candidate": "tanh"}, {"candidate": "linear"}, {"normalize": False}):
                if kind == "mingru" and "normalize" in more:
                    continue
                m = module(3, 4, batch_first=True, dtype=torch.float64, **more)
                x = torch.randn(2, 6, 3, dtype=torch.float64)
                want = loop(x, m.weight_l0, m.bias_l0, kind=kind, **more)[0]
                self.assertTrue(torch.allclose(m(x)[0], want, rtol=0, atol=1e-12), f"{kind} {more}")

    def test_every_gate_that_forgets_has_the_bias(self):
        for m, value in ((MinGRU(3, 4, 2, bidirectional=True, forget_bias=2.0), -2),
                         (MinLSTM(3, 4, 2, bidirectional=True, forget_bias=2.0), 2)):
            biases = [p for name, p in m.named_parameters() if name.startswith("bias")]
            self.assertEqual(len(biases), 4)
            for bias in biases:
                self.assertTrue((bias[:4] == value).all() and not (bias[4:] == value).any())

    def test_all_weights_are_in_the_order_of_pytorch(self):
        m, theirs = MinGRU(3, 4, 2, bidirectional=True), torch.nn.GRU(3, 4, 2, bidirectional=True)
        names = {id(p): name for name, p in m.named_parameters()}
        other = {id(p): name.replace("_ih", "") for name, p in theirs.named_parameters()}
        self.assertEqual([names[id(group[0])] for group in m.all_weights],
                         [other[id(group[0])] for group in theirs.all_weights])


if __name__ == "__main__":
    unittest.main()
