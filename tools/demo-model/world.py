"""The tiny world that the demo model knows: who lives in Fern Valley, and plain facts about things.

Everything here is data; stories.py and dialogues.py turn it into text. A template picks one of
`[a|b|c]` (they may nest) and fills `{slot}`; `{Slot}` gives the slot's text with a capital.
"""
import random
import re

UNKNOWN = "I do not know that. I am a very small model."
TOO_BIG = "That sum is too big for me. I am a very small model."

# name: kind, he/she, size (0 tiny .. 4 huge), colour, food, home, sound, friend, loves
_CAST = """
Pip   | compy         | she | 1 | brown  | beetles     | in a nest under the ferns | cheep   | Rex   | telling stories
Rex   | tyrannosaurus | he  | 3 | green  | fish        | in the big cave           | roar    | Pip   | splashing in the river
Tara  | triceratops   | she | 3 | grey   | ferns       | on the green hill         | snort   | Bo    | rolling in the mud
Bo    | long-neck     | he  | 4 | blue   | leaves      | in the tall forest        | hoom    | Tara  | looking at the stars
Spike | stegosaurus   | he  | 3 | orange | moss        | among the old rocks       | grunt   | Kiki  | sleeping in the sun
Kiki  | pterosaur     | she | 2 | white  | shrimps     | on the high cliff         | kree    | Spike | flying over the lake
Momo  | mouse         | she | 1 | black  | seeds       | inside the hollow log     | squeak  | Dot   | finding shiny stones
Dot   | turtle        | she | 2 | purple | water weeds | by the quiet pond         | hiss    | Momo  | swimming slowly
Lulu  | frog          | she | 1 | golden | flies       | on the lily leaf          | ribbit  | Zip   | jumping high
Zip   | dragonfly     | he  | 0 | silver | gnats       | in the long reeds         | buzz    | Lulu  | flying in circles
Sunny | lizard        | he  | 1 | yellow | ants        | on the warm stone         | tick    | Nub   | running fast
Nub   | ankylosaurus  | he  | 2 | red    | roots       | in the flower meadow      | thump   | Sunny | counting flowers
"""
SIZES = ["tiny", "small", "middle-sized", "big", "huge"]


class Animal:
    def __init__(self, row):
        self.name, self.kind, self.he, size, *rest = [cell.strip() for cell in row.split("|")]
        self.colour, self.food, self.home, self.sound, self.friend, self.loves = rest
        self.rank, self.size = int(size), SIZES[int(size)]


CAST = {a.name: a for a in map(Animal, _CAST.strip().splitlines())}
DINOSAURS = ["compy", "tyrannosaurus", "triceratops", "long-neck", "stegosaurus", "ankylosaurus"]


def pairs(text):
    """'a=b, c=d' as a dict."""
    return dict(item.strip().split("=") for item in text.split(",") if item.strip())


COLOURS = pairs("""the sky=blue, grass=green, the sun=yellow, the moon=white, snow=white, a fern=green, a leaf=green,
    fire=red, blood=red, a strawberry=red, a cherry=red, an apple=red, a banana=yellow, a lemon=yellow, a carrot=orange,
    an orange=orange, mud=brown, wood=brown, chocolate=brown, a stone=grey, a cloud=white, milk=white, an egg=white,
    sand=yellow, the night=black, coal=black, water=blue, the sea=blue, the river=blue, gold=yellow, a tomato=red,
    an elephant=grey, a frog=green, a pig=pink, a crow=black, a rose=red, ice=white, a tree=green""")
SOUNDS = pairs("""cat=meow, dog=woof, cow=moo, duck=quack, sheep=baa, pig=oink, horse=neigh, bee=buzz, frog=ribbit,
    lion=roar, mouse=squeak, snake=hiss, bird=tweet, owl=hoot, hen=cluck, wolf=howl, crow=caw, dinosaur=roar""")
FOODS = pairs("""cat=fish, dog=bones, cow=grass, duck=bread, sheep=grass, pig=roots, horse=hay, bee=nectar, frog=flies,
    lion=meat, mouse=seeds, snake=mice, bird=seeds, owl=mice, rabbit=carrots, bear=honey, monkey=bananas, fish=worms,
    spider=flies, squirrel=nuts""")
HOMES = pairs("""bird=in a nest, fish=in the water, bee=in a hive, rabbit=in a hole, bear=in a cave, frog=by the pond,
    cow=on a farm, horse=on a farm, spider=in a web, ant=in an anthill, duck=by the pond, owl=in a tree,
    squirrel=in a tree, mouse=in a hole, fox=in the forest, wolf=in the forest, whale=in the sea, camel=in the desert""")
LEGS = pairs("""cat=four, dog=four, cow=four, duck=two, sheep=four, pig=four, horse=four, bee=six, frog=four, spider=eight,
    ant=six, bird=two, fish=no, snake=no, lizard=four, mouse=four, beetle=six, hen=two, lion=four, worm=no""")
OPPOSITES = pairs("""hot=cold, big=small, up=down, day=night, happy=sad, fast=slow, old=young, wet=dry, good=bad, long=short,
    open=closed, light=dark, full=empty, left=right, hard=soft, loud=quiet, yes=no, early=late, high=low, rich=poor,
    strong=weak, in=out, clean=dirty, black=white, near=far, new=old, thick=thin, begin=end""")
NATURE = pairs("""fire=hot, ice=cold, snow=cold, the sun=hot, water=wet, rain=wet, a stone=hard, a feather=soft,
    a snail=slow, an elephant=big, an ant=small, sugar=sweet, a lemon=sour, a mountain=high, a mouse=small, sand=dry""")
ABILITIES = {
    "fly": (["bird", "bee", "dragonfly", "butterfly", "bat", "owl", "crow"], ["fish", "dog", "cat", "cow", "stone", "frog"]),
    "swim": (["fish", "duck", "frog", "turtle", "whale", "shark"], ["stone", "hen", "bee", "tree", "spider"]),
    "jump": (["frog", "cat", "rabbit", "horse", "dog"], ["snail", "tree", "stone", "worm", "fish"]),
    "talk": (["parrot", "child"], ["stone", "tree", "fish", "cow", "egg"]),
    "climb": (["monkey", "cat", "squirrel", "bear"], ["fish", "cow", "stone", "whale", "duck"]),
}
DEFINITIONS = {
    "a fern": "A fern is a green plant with soft leaves.", "a dinosaur": "A dinosaur is an animal that lived long ago.",
    "rain": "Rain is water that falls from the clouds.", "snow": "Snow is soft white ice that falls from the clouds.",
    "the sun": "The sun is a big star that keeps us warm.", "the moon": "The moon is a round light in the night sky.",
    "a river": "A river is water that runs to the sea.", "a nest": "A nest is a soft home for eggs.",
    "an egg": "An egg is a small round home for a baby bird.", "a friend": "A friend is someone who is kind to you.",
    "a tree": "A tree is a tall plant with leaves.", "a cave": "A cave is a big hole in the rock.",
    "a cloud": "A cloud is many tiny drops of water in the sky.", "a star": "A star is a light far away in the night sky.",
    "a mountain": "A mountain is a very high hill.", "the sea": "The sea is a lot of salty water.",
    "a pond": "A pond is a small quiet lake.", "wind": "Wind is air that moves.", "ice": "Ice is water that is very cold and hard.",
    "a story": "A story is a tale with a beginning and an end.", "a cat": "A cat is a soft animal that says meow.",
    "a dog": "A dog is a friendly animal that says woof.", "a bird": "A bird is an animal with wings and feathers.",
    "a fish": "A fish is an animal that swims in the water.", "a model": "A model is a program that learned from text.",
    "Compsognathus": "Compsognathus was a very small dinosaur.", "a compy": "A compy is a very small dinosaur.",
    "Fern Valley": "Fern Valley is the green place where my stories happen.", "an apple": "An apple is a sweet round fruit.",
    "a flower": "A flower is the pretty part of a plant.", "honey": "Honey is sweet food that bees make.",
    "a computer": "A computer is a machine that can count very fast.",
}
DEFINITIONS |= {f"{'an' if a[0] in 'aeiou' else 'a'} {a}": f"{'An' if a[0] in 'aeiou' else 'A'} {a} is an animal." for a in
                """bear rabbit fox frog mouse duck hen owl turtle lizard beetle bee horse cow pig sheep lion monkey squirrel wolf
                snail whale elephant snake""".split()}
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
           "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"]

KINDS = """cat dog bird bear rabbit fox frog mouse duck hen owl fish turtle lizard beetle bee horse cow pig sheep lion monkey
    hedgehog squirrel wolf snail crab spider robot dragon princess king girl boy giant pirate wizard whale elephant penguin tiger
    snake knight witch ghost goat donkey butterfly crow deer otter badger mole kitten puppy crocodile unicorn fairy dinosaur child bat""".split()
GIRLS = """Anna Lily Mia Lucy Emma Nora Rosa Ella Ida Clara Sara Mary Alice Kate Jane Lena Ruby Zoe Eva Amy Bella Daisy Fifi Hetty
    Tibby Nelly Mina Bubu Fern Tuli""".split()
BOYS = """Ben Tom Max Sam Jack Leo Tim Finn Oscar Otto Hugo Peter John Bob Paul Mark Felix Noah Adam Luke Toby Milo Bruno Gus Bim
    Pogo Wim Rolo Kip Moss""".split()
THINGS = """ball cup hat book stone shell feather flower ring drum kite spoon bell box basket leaf stick key button rope lamp
    doll boat map coin""".split()
PLAIN_COLOURS = "red blue green yellow white black brown orange purple pink grey".split()


def article(noun):
    """The noun with 'a' or 'an' before it."""
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def invent_name(rng):
    """A name that no list has, so that the model learns to copy names it never saw."""
    make = lambda: rng.choice("b d f g h j k l m n p r s t v w z br tr st ch sh".split()) + rng.choice("aeiou")
    name = "".join(make() for _ in range(rng.choice([1, 2])) ) + rng.choice(["", "", "n", "m", "x", "l", "sh", "rk"])
    return name.capitalize()


def any_name(rng, he="he"):
    return rng.choice(BOYS if he == "he" else GIRLS) if rng.random() < 0.85 else invent_name(rng)


_CHOICE = re.compile(r"\[([^\[\]]*)\]")
_SLOT = re.compile(r"\{(\w+)\}")


def expand(template, rng, slots=None):
    """The template's text: one of each `[a|b]`, every `{slot}` filled from `slots`."""
    def fill(match):
        name = match.group(1)
        if name in slots:
            return slots[name]
        text = slots[name[0].lower() + name[1:]]
        return text[0].upper() + text[1:]

    while _CHOICE.search(template):
        template = _CHOICE.sub(lambda m: rng.choice(m.group(1).split("|")), template)
    return _SLOT.sub(fill, template) if slots else template


def seeded(seed):
    return random.Random(seed)
