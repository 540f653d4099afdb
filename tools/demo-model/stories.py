"""Little stories: a beginning, a problem, a friend who helps, and an end. Names, places and things persist.

A plot is its lines and the questions that a listener may ask afterwards. H is the hero, F the friend
(`he/him/his`, `fhe/fhim/fhis`), P a place, O a thing, W something to eat, N the little one's name.
"""
from world import BOYS, CAST, GIRLS, KINDS, PLAIN_COLOURS, SIZES, any_name, article, expand

PLACES = ["the river", "the pond", "the old tree", "the big rock", "the green hill", "the lake", "the tall ferns", "the bridge"]
HOMES = ["in a nest under the ferns", "by the river", "near the old tree", "in a small cave", "on the green hill", "by the pond",
         "at the edge of the forest", "behind the big rock"]
TREASURES = ["a shiny stone", "a white feather", "a red ball", "a blue shell", "a little bell", "a yellow flower", "a round nut",
             "a silver key"]
TREATS = ["sweet berries", "ripe figs", "round nuts", "juicy leaves", "crunchy roots", "yellow plums"]
LOVES = ["playing by the river", "looking at the clouds", "singing songs", "running in the grass", "jumping over stones",
         "sleeping in the sun", "counting the stars", "telling stories"]

OPENINGS = [
    "Once upon a time, there [was|lived] {asize} {col} {kind} called {H}. {He} lived {home}.",
    "Once upon a time, {asize} {kind} called {H} lived {home}.",
    "Once upon a time, {asize} {kind} called {H} lived {home}. {He} loved {loves}.",
    "Long ago, in a green valley, there lived {asize} {kind} called {H}. {He} loved {loves}.",
    "There was once {asize} {col} {kind} called {H}, who lived {home}.",
    "{H} was {asize} {col} {kind} who lived {home}. [{He} loved {loves}.|{He} was very kind.]",
]
DAY = "One [sunny|windy|quiet|fine|warm|cool] [morning|day|afternoon]"
ENDINGS = ["From that day on, {H} and {F} were the best of friends.", "And {H} and {F} were happy.",
           "That night, {H} fell asleep with a smile.", "{H} never forgot that day.", "And that is the end of the story."]

PLOTS = {
    "egg": dict(
        about="a lost egg", lines=[
            DAY + ", {H} was walking near {P} when {he} [saw|found] {acol2} egg. It was cold and all alone.",
            '"Whose egg is this?" {H} [asked|said]. {He} did not know what to do.',
            'So {H} [went to|called] {F} the {fkind}. "It is not my egg," said {F}, "but we can keep it warm."',
            "They put soft ferns around the egg and sat beside it all night.",
            'In the morning the egg went crack! A [little|tiny] head came out and said, "Cheep!"',
            "They called the baby {N}. Soon the mother came [running|back] and thanked {H} and {F}.",
        ], qa=[("What did {H} find?", "{H} found {acol2} egg."), ("Who helped {H}?", "{F} the {fkind} helped {H}."),
               ("[What was the name of the baby|What was the baby called]?", "The baby was called {N}."),
               ("Where was the egg?", "The egg was near {P}."), ("What colour was the egg?", "The egg was {col2}.")]),
    "lost": dict(
        about="a long way home", lines=[
            DAY + ", {H} went into the forest to look for {W}. {He} walked and walked.",
            "Soon it [was|grew] dark, and {H} could not find the way home. {He} sat down and [cried|began to cry].",
            '{F} the {fkind} heard {him}. "Why are you crying?" asked {F}.',
            '"I am lost," said {H}. "I want to go home."',
            '"Do not be afraid," said {F}. "We will follow the river." They walked together [under|in the light of] the moon.',
            "At last {H} saw {his} home. {His} mother gave them both {W}, and {H} thanked {F}.",
        ], qa=[("What was {H} looking for?", "{H} was looking for {W}."), ("Why did {H} cry?", "{H} cried because {he} was lost."),
               ("Who helped {H}?", "{F} the {fkind} helped {H}."), ("What did they follow?", "They followed the river."),
               ("Where did {H} get lost?", "{H} got lost in the forest.")]),
    "share": dict(
        about="sharing", lines=[
            DAY + ", {H} found {W} near {P}. There [were|was] so much to eat!",
            '{F} the {fkind} came by. "I am hungry," said {F}. "May I have some?"',
            '"No," said {H}, "it is all mine." {F} went away with a sad face.',
            "{H} ate and ate, until {his} tummy hurt. It was no fun to eat alone.",
            'So {H} ran after {F}. "I am sorry," {he} said. "Please come and eat with me."',
            "They sat down together and shared the {W0}. Now [everything|it all] tasted much better.",
        ], qa=[("What did {H} find?", "{H} found {W}."), ("Who was hungry?", "{F} was hungry."),
               ("Where did {H} find the food?", "{H} found it near {P}."), ("Why was {F} sad?", "{F} was sad because {H} did not want to share.")]),
    "storm": dict(
        about="a big storm", lines=[
            "One night there was a big storm. The wind blew and the rain fell and fell.",
            "In the morning {H}'s home was gone. The wind had blown it into {P0}.",
            '{H} was very sad. "Where shall I sleep now?" {he} [asked|said].',
            '{F} the {fkind} came to see {him}. "We will build a new home," said {F}, "and it will be stronger."',
            "{F} brought long sticks, and {H} brought soft leaves. They worked all day.",
            "In the evening the new home was ready. It was warm and dry, and {H} thanked {F}.",
        ], qa=[("Who helped {H}?", "{F} the {fkind} helped {H}."), ("What did {F} bring?", "{F} brought long sticks."),
               ("What did {H} bring?", "{H} brought soft leaves."), ("Why was {H} sad?", "{H} was sad because {his} home was gone."),
               ("What did they build?", "They built a new home.")]),
    "mud": dict(
        about="deep mud", lines=[
            DAY + ", {H} went to {P} to drink. The ground was [soft and wet|wet and brown].",
            "Oh no! {H} was stuck in the mud. {He} pulled and pulled, but {he} could not get out.",
            '"Help! Help!" {H} [called|cried]. {F} the {fkind} heard {him} and came running.',
            '"Hold this," said {F}, and gave {him} a long stick. "One, two, three, pull!"',
            "Pop! {H} flew out of the mud and fell on top of {F}. They were both brown from head to tail.",
            "They laughed and laughed, and then they washed in the water.",
        ], qa=[("Where did {H} go?", "{H} went to {P}."), ("Who helped {H}?", "{F} the {fkind} helped {H}."),
               ("What did {F} give {H}?", "{F} gave {H} a long stick."), ("What was the problem?", "{H} was stuck in the mud.")]),
    "treasure": dict(
        about="a lost treasure", lines=[
            "{H} had {O}. It was the most beautiful thing that {he} had.",
            DAY + ", the {O0} was gone! {H} looked in the grass and under the leaves, but it was not there.",
            'Then {H} met {F} the {fkind}. "Have you seen my {O0}?" [asked {H}|{H} asked].',
            '"I saw something near {P}," said {F}. "Come, I will show you."',
            "They went to {P} together. And there it was, the {O0}! {H} jumped for joy.",
            '"Thank you, {F}," said {H}. "You can play with it too." And they played until the evening.',
        ], qa=[("What did {H} lose?", "{H} lost {O}."), ("Who helped {H}?", "{F} the {fkind} helped {H}."),
               ("Where was the {O0}?", "The {O0} was near {P}."), ("Where did they find it?", "They found it near {P}.")]),
    "dark": dict(
        about="the dark night", lines=[
            "{H} was afraid of the dark. One night {he} heard a [strange|funny] noise near {P}.",
            '"Hoo, hoo!" said the noise. {H} hid under a leaf and did not move.',
            '{F} the {fkind} came by. "Why are you hiding?" [asked {F}|{F} asked].',
            '"There is a monster near {P}," said {H}. "Let us look together," said {F}.',
            "They walked slowly to {P}. There was no monster. It was only the wind in an old log!",
            "{H} laughed. {He} looked up at the moon and the stars, and {he} was not afraid any more.",
        ], qa=[("What was {H} afraid of?", "{H} was afraid of the dark."), ("What was the noise?", "It was only the wind in an old log."),
               ("Who helped {H}?", "{F} the {fkind} helped {H}."), ("Where was the noise?", "The noise was near {P}.")]),
    "swim": dict(
        about="learning to swim", lines=[
            "All the others could swim, but {H} could not. {He} was afraid of the water.",
            DAY + ', {F} the {fkind} said, "Come to the lake with me. I will teach you."',
            "First {H} put one foot into the water. It was [cold|cool], and {he} jumped back.",
            '"Try again," said {F}. "I am here." So {H} tried again, and again.',
            'Then {F} said, "Now kick your legs!" {H} kicked, and {he} did not sink.',
            '"Look, I can swim!" {H} [cried|called]. {F} was very proud of {him}.',
        ], qa=[("What did {H} learn?", "{H} learned to swim."), ("Who taught {H}?", "{F} the {fkind} taught {H}."),
               ("What was {H} afraid of?", "{H} was afraid of the water."), ("Where did they go?", "They went to the lake.")]),
    "quarrel": dict(
        about="a quarrel", lines=[
            DAY + ", {H} and {F} the {fkind} found {O} near {P}.",
            '"It is mine!" said {H}. "No, it is mine!" said {F}. They pulled and shouted.',
            "Then the {O0} fell into the water, and it was gone. Now they both had nothing.",
            "{H} looked at {F}. {F} looked at {H}. They both felt very [sad|bad].",
            '"I am sorry," said {H}. "I am sorry too," said {F}.',
            "They looked in the water together, and soon they found the {O0}. This time they shared it.",
        ], qa=[("What did they find?", "They found {O}."), ("Where did they find it?", "They found it near {P}."),
               ("Who said sorry first?", "{H} said sorry first."), ("Who was {H}'s friend?", "{H}'s friend was {F} the {fkind}.")]),
    "dry": dict(
        about="a dry summer", lines=[
            "It was a hot summer, and no rain fell. The river was dry, and everyone was thirsty.",
            '"I will look for water," said {H}. {F} the {fkind} went with {him}.',
            "They walked all day in the hot sun. {F} was tired and wanted to stop.",
            'Then {H} put {his} ear to the ground near {P}. "I can hear water!" {he} said.',
            "They dug and dug. At last cold, clear water came out of the ground.",
            "All the animals came to drink, and they thanked {H} and {F}.",
        ], qa=[("What did {H} look for?", "{H} looked for water."), ("Where was the water?", "The water was near {P}."),
               ("Who went with {H}?", "{F} the {fkind} went with {H}."), ("Why was everyone thirsty?", "Everyone was thirsty because the river was dry.")]),
    "sick": dict(
        about="a sick friend", lines=[
            DAY + ", {H} wanted to play with {F} the {fkind}. But {F} did not come.",
            "{H} went to see {fhim}. {F} was lying on a bed of leaves. {Fhe} was sick.",
            '"I am cold and my head hurts," said {F}. {H} was worried.',
            "So {H} ran to {P} and brought {W} and fresh water.",
            "{H} sat beside {F} and told {fhim} a funny story. {F} ate a little and smiled.",
            'The next day {F} was well again. "You are a good friend," {fhe} said to {H}.',
        ], qa=[("Who was sick?", "{F} was sick."), ("What did {H} bring?", "{H} brought {W} and fresh water."),
               ("Where did {H} run?", "{H} ran to {P}."), ("What did {H} tell {F}?", "{H} told {F} a funny story.")]),
    "noise": dict(
        about="a loud noise", lines=[
            DAY + ", there was a loud noise near {P}. Boom! Boom! Boom!",
            '"It is a monster!" cried the animals, and they all ran away.',
            "But {H} was brave. {He} [walked|went] slowly to {P} to look.",
            "There was no monster. It was only {F} the {fkind}, who was [jumping|dancing] on a hollow log!",
            '"I am making music," said {F}. "Do you want to play with me?"',
            "{H} laughed and jumped on the log too. Soon all the animals came back to dance.",
        ], qa=[("What was the noise?", "It was {F} on a hollow log."), ("Who was brave?", "{H} was brave."),
               ("Where was the noise?", "The noise was near {P}."), ("Who made the noise?", "{F} the {fkind} made the noise.")]),
    "friend": dict(
        about="a new friend", lines=[
            "But {H} was sad, because {he} had no one to play with.",
            DAY + ", {H} saw someone new near {P}. It was {afkind}.",
            '"Hello," said {H}. "My name is {H}. What is your name?" "I am {F}," said the {fkind}.',
            '"Are you alone too?" [asked {F}|{F} asked]. "Yes," said {H}. "Shall we play?"',
            "They played all day near {P}. Then they shared some {W}.",
            'In the evening {F} said, "I am so happy that I met you." "Me too," said {H}.',
        ], qa=[("Who did {H} meet?", "{H} met {F} the {fkind}."), ("Where did they meet?", "They met near {P}."),
               ("What did they share?", "They shared some {W}."), ("Why was {H} sad?", "{H} was sad because {he} had no one to play with.")]),
    "race": dict(
        about="a race", lines=[
            DAY + ', {F} the {fkind} said to {H}, "Let us run to {P}. The first one gets {O}."',
            "One, two, three, go! {H} ran very fast, and soon {he} was first.",
            "Then {H} saw a little beetle. It was lying on its back and could not get up.",
            "{H} stopped and helped the beetle. {F} ran past {him} and was first at {P}.",
            '"Why did you stop?" [asked {F}|{F} asked]. {H} told {fhim} about the beetle.',
            '"You are kind," said {F}. "That is better than fast." And {fhe} gave the {O0} to {H}.',
        ], qa=[("Who won the race?", "{F} won the race."), ("Why did {H} stop?", "{H} stopped to help a beetle."),
               ("Where did they run?", "They ran to {P}."), ("What did {F} give {H}?", "{F} gave {H} {O}.")]),
    "gift": dict(
        about="a birthday", lines=[
            "It was the birthday of {F} the {fkind}, and {H} was going to the party.",
            "{H} wanted to bring {O}. But on the way, near {P}, {he} dropped it into the water.",
            '"Oh no!" said {H}. "Now I have nothing to give." {He} sat down and [thought|was sad].',
            "Then {he} saw many flowers in the grass. {H} made a ring of flowers.",
            '{F} put the ring on {fhis} head. "This is the best gift of all!" {fhe} said.',
            "They ate {W} and danced until the moon came up.",
        ], qa=[("Whose birthday was it?", "It was the birthday of {F} the {fkind}."), ("What did {H} make?", "{H} made a ring of flowers."),
               ("What did {H} drop?", "{H} dropped {O}."), ("What did they eat?", "They ate {W}.")]),
}

HE = dict(princess="she", girl="she", witch="she", fairy="she", hen="she", cow="she", king="he", boy="he", wizard="he")
SWIMMERS = {"fish", "frog", "duck", "whale", "turtle", "penguin", "crocodile", "otter", "crab", "dragonfly"}


def _being(rng, prefix, name=None, kind=None, size=None):
    """The slots of a hero (prefix "") or a friend (prefix "f"): of the cast, or made up."""
    cast = CAST.get(name) or (rng.choice(list(CAST.values())) if not name and not kind and rng.random() < 0.45 else None)
    kind = cast.kind if cast else kind or rng.choice(KINDS)
    he = cast.he if cast else HE.get(kind) or ("he" if name in BOYS else "she" if name in GIRLS else rng.choice(["he", "she"]))
    slots = dict(he=he, him={"he": "him", "she": "her"}[he], his={"he": "his", "she": "her"}[he], kind=kind)
    slots = {prefix + key: value for key, value in slots.items()}
    slots["F" if prefix else "H"] = cast.name if cast else name or any_name(rng, he)
    slots[prefix + "size"] = cast.size if cast else size or rng.choice(SIZES[:4])
    slots["a" + prefix + "kind"] = article(slots[prefix + "kind"])
    if not prefix:
        slots.update(col=cast.colour if cast else rng.choice(PLAIN_COLOURS), home=cast.home if cast else rng.choice(HOMES),
                     loves=cast.loves if cast else rng.choice(LOVES), asize=article(slots["size"]))
    return slots


class Story:
    """A story's text, and what to ask about it afterwards: (question, answer) pairs."""

    def __init__(self, rng, name=None, kind=None, plot=None, size=None):
        slots = _being(rng, "", name, kind, size)
        unfit = {"swim"} if slots["kind"] in SWIMMERS else set()
        plot = PLOTS[plot or rng.choice([key for key in PLOTS if key not in unfit])]
        friend = CAST[slots["H"]].friend if slots["H"] in CAST and rng.random() < 0.5 else None
        while "F" not in slots or slots["F"] == slots["H"]:
            slots.update(_being(rng, "f", friend))
        place, thing, food, colour = (rng.choice(x) for x in (PLACES, TREASURES, TREATS, PLAIN_COLOURS))
        slots.update(P=place, P0=place, O=thing, O0=thing.split(" ", 1)[1], W=food, W0=food, N=any_name(rng, rng.choice(["he", "she"])),
                     col2=colour, acol2=article(colour))
        slots["P0"] = rng.choice(["the river", "the lake", "the forest"])
        self.hero, self.kind, self.about, self.slots = slots["H"], slots["kind"], plot["about"], slots
        lines = [rng.choice(OPENINGS), *plot["lines"], rng.choice(ENDINGS)]
        self.text = " ".join(expand(line, rng, slots) for line in lines)
        asked = plot["qa"] + [("Who was the story about?", "The story was about {H} the {kind}."),
                              ("What was the story about?", "It was about " + self.about + "."),
                              ("What was the name of the {kind}?", "The {kind} was called {H}."),
                              ("Where did {H} live?", "{H} lived {home}.")]
        known = slots["home"] in self.text
        self.qa = [(expand(q, rng, slots), expand(a, rng, slots)) for q, a in asked if known or "{home}" not in a]
