"""Update rules over flat slices of parameters, the curves of learning rate and weight decay, and loss scaling."""
