"""Models and layers of minGRU-pytorch and PyTorch, and models given to PyTorch."""
import pickle
import unittest

import numpy as np
from torch_support import loop, torch

import minrnn
from minrnn.command import command
from minrnn.torch import MinGRU, from_lucidrains, from_model, to_model


class Layers(unittest.TestCase):
    def test_lucidrains(self):
        try:
            from minGRU_pytorch.minGRU import minGRU
            from minGRU_pytorch.minLSTM import minLSTM
        except ImportError:
            self.skipTest("minGRU-pytorch is not installed: its weights were not compared (pip install minGRU-pytorch)")
        torch.manual_seed(1)
        for theirs in (minGRU, minLSTM):
            for factor in (1.0, 1.5):
                module, x = theirs(16, factor), torch.randn(3, 40, 16)
                for source in (module, module.state_dict()):
                    ours = from_lucidrains(source)
                    with torch.no_grad():  # theirs, by logarithms, is up to 5e-6 from its own value in float64
                        exact = module.double()(x.double())
                        self.assertLessEqual((ours(x)[0] - exact).abs().max().item(), 2e-6)
                        self.assertLessEqual((ours(x)[0] - module.float()(x)).abs().max().item(), 1e-5)

    def test_a_model_of_minrnn(self):
        for mixer in ("mingru", "minlstm"):
            for more in ({}, {"mixer_bias": False}, {"transition": "signed", "candidate": "tanh"}):
                model = minrnn.Model(mixer=mixer, input="reals", inputs=2, outputs=1, loss="mse", layers=2, dim=8,
                                     **more)
                layer, x = from_model(model, 1), torch.randn(2, 9, 8)
                self.assertEqual(layer.bias, not more.get("mixer_bias") is False)
                self.assertEqual((layer.signed, layer.candidate),
                                 ("transition" in more, more.get("candidate", "positive")))
                back = to_model(layer, 1)
                tensors = model.state_dict()
                self.assertTrue(back and all((tensors[name] == value).all() for name, value in back.items()))
                self.assertEqual({n for n in tensors if n.startswith("blocks.1.mixer.l")}, back.keys())
                with torch.no_grad():
                    layer.weight_l0.mul_(2)
                self.assertFalse((tensors["blocks.1.mixer.linear_h.weight"] == 0).all())
                model.load_state_dict({**tensors, **to_model(layer, 1)})
                self.assertTrue(torch.equal(from_model(model, 1)(x)[0], layer(x)[0]))


@unittest.skipUnless(command(), "the command is not built: weights of other programs were not read")
class Models(unittest.TestCase):
    def test_a_language_model_of_lucidrains(self):
        try:
            from minGRU_pytorch.minLM import minLM
        except ImportError:
            self.skipTest("minGRU-pytorch is not installed: a whole model was not compared")
        torch.manual_seed(1)
        theirs, ids = minLM(num_tokens=256, dim=16, depth=2, use_lstm=False), torch.randint(0, 256, (2, 20))
        ours = minrnn.from_lucidrains(theirs, vocab="bytes")
        with torch.no_grad():
            np.testing.assert_allclose(ours.forward(ids.numpy()), theirs(ids).numpy(), atol=1e-5)
        self.assertEqual("".join(ours.generate("a", tokens=8)), "".join(ours.generate("a", tokens=8)))
        self.assertEqual(minrnn.from_lucidrains(theirs, text="".join(map(chr, range(32, 288)))).vocab, "chars")

    def test_a_layer_of_pytorch(self):
        torch.manual_seed(1)
        theirs, x = torch.nn.LSTM(3, 5, batch_first=True), torch.randn(2, 7, 3)
        ours = minrnn.from_state_dict(theirs)
        with torch.no_grad():
            np.testing.assert_allclose(ours.forward(values=x.numpy()), theirs(x)[0].numpy(), atol=2e-6)
        low = {name: value.bfloat16() for name, value in theirs.state_dict().items()}
        theirs.load_state_dict(low)
        with torch.no_grad():
            np.testing.assert_allclose(minrnn.from_state_dict(low).forward(values=x.numpy()), theirs(x)[0].numpy(),
                                       atol=2e-6)

    def test_there_and_back(self):
        for keys in ({"mixer": "minlstm", "conv": 3, "mlp": 2, "candidate": "tanh"}, {"mixer": "attention", "heads": 2},
                     {"mixer": "gru", "gru_reset": "after"}):
            model = minrnn.Model(vocab="bytes", layers=2, dim=8, **keys)
            tensors = pickle.loads(pickle.dumps(minrnn.to_torch(model)))
            self.assertTrue(all(isinstance(x, torch.Tensor) for x in tensors.values()))
            again = minrnn.from_state_dict(tensors)
            self.assertEqual((again.config, again.vocab), (model.config, model.vocab))
            for name, value in model.state_dict().items():
                np.testing.assert_array_equal(again.tensor(name), value, name)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^gru-reset = before"):
            minrnn.to_torch(minrnn.Model(vocab="bytes", layers=1, dim=8, mixer="gru"))


def model(**more):
    return minrnn.Model(**{"mixer": "mingru", "input": "reals", "inputs": 2, "outputs": 1, "loss": "mse", "layers": 1,
                           "dim": 8, "seed": 2, **more})


class Corners(unittest.TestCase):
    def test_rows_of_lucidrains(self):
        """Their rows are candidate and gate, or candidate, forget gate and input gate."""
        torch.manual_seed(1)
        x, out = torch.randn(2, 9, 3), torch.randn(3, 4)
        parts = [torch.randn(4, 3) for _ in range(3)]
        for name, kind, ours in (("to_hidden_and_gate", "mingru", [1, 0]),
                                 ("to_hidden_and_f_i_gate", "minlstm", [1, 2, 0])):
            source = {f"{name}.weight": torch.cat(parts[:len(ours)])}
            want, end = loop(x, torch.cat([parts[i] for i in ours]), kind=kind)
            y, last = from_lucidrains(source)(x)
            self.assertTrue(torch.allclose(y, want, rtol=0, atol=1e-5))
            projected = from_lucidrains({**source, "to_out.weight": out})
            y, last = projected(x)
            self.assertTrue(torch.allclose(y, want @ out.T, rtol=1e-5, atol=1e-5))
            last = last[0] if kind == "minlstm" else last
            self.assertTrue(torch.allclose(last[0], end, rtol=0, atol=1e-5))
            kept = out.clone()
            with torch.no_grad():
                projected.out.weight.zero_()
            self.assertTrue(torch.equal(out, kept))  # the source is left alone

    def test_gates_that_are_not_normalized(self):
        for how in "yes", "no":
            layer = from_model(model(mixer="minlstm", normalize_gates=how))
            self.assertEqual(layer.normalize, how == "yes")

    def test_a_learned_first_state_is_refused(self):
        with self.assertRaisesRegex(ValueError, "^model: blocks.0.mixer.h0, a learned first state"):
            from_model(model(h0="learned"))

    def test_a_layer_with_a_projection_is_called_as_one_without(self):
        layer = from_lucidrains({"to_hidden_and_gate.weight": torch.randn(8, 3), "to_out.weight": torch.randn(3, 4)})
        x, h = torch.randn(2, 5, 3), torch.rand(1, 2, 4)
        self.assertTrue(torch.equal(layer(input=x, hx=h)[0], layer(x, h)[0]))

    def test_tensors_are_copies(self):
        layer = MinGRU(3, 4)
        found = to_model(layer)
        before = {name: value.copy() for name, value in found.items()}
        with torch.no_grad():
            for p in layer.parameters():
                p.add_(1)
        for name, value in found.items():
            np.testing.assert_array_equal(value, before[name])

    def test_a_model_takes_tensors_of_pytorch(self):
        a, b = model(), model(seed=7)
        b.load_state_dict({name: torch.tensor(value).double().requires_grad_()
                           for name, value in a.state_dict().items()})
        for name, value in a.state_dict().items():
            np.testing.assert_array_equal(b.tensor(name), value)
        low = {name: torch.tensor(value).bfloat16() for name, value in a.state_dict().items()}
        b.load_state_dict(low)
        np.testing.assert_array_equal(b.tensor("head.weight"), low["head.weight"].float().numpy())


if __name__ == "__main__":
    unittest.main()
