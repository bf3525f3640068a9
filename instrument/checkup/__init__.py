"""What `instrument doctor` tries in processes of their own: recording here, with MindSpore and without."""
