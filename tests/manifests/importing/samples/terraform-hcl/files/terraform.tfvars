prefix   = "shop"
password = "correct-horse-battery"
