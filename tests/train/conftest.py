from train.runtime import load_paddle

load_paddle()
