"""From gradients to new weights, whatever the loss: flat gradients, loss scaling, optimisers, the schedule."""
