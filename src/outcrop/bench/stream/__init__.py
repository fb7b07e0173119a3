"""`outcrop bench stream`: bandwidth of DRAM and of arrays on a tier."""
