"""How models look in notebooks."""
from html import escape


def html(model):
    config = model.config
    shown = ("mixer", "layers", "dim", "expansion", "conv", "mlp", "norm", "input", "inputs", "head", "loss", "outputs")
    rows = "".join(f"<tr><td>{escape(key)}</td><td>{escape(config[key])}</td></tr>" for key in shown if key in config)
    tensors = "".join(
        f"<tr><td>{escape(name)}</td><td>{' × '.join(map(str, shape))}</td><td>{dtype}</td></tr>"
        for name, dtype, shape in model._net.tensors())
    return (f"<b>minrnn.Model</b>, {model.parameters:,} parameters, {model.state_bytes:,} bytes of state, step "
            f"{model.steps}<table>{rows}</table><details><summary>tensors</summary><table>{tensors}</table></details>")
