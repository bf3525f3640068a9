"""What a training run says about itself."""
