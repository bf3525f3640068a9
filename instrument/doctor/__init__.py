"""Try what works on this machine: `examine` starts trials in processes of their own and reads back what they record."""
