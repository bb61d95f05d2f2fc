def call(bases, seed, number):
    return []
