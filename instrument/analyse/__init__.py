"""Tables that explain parsed traces, one module a question, and the conclusions that are drawn from them."""
