"""Where configuration meets code: the only place that knows Hydra and OmegaConf."""
