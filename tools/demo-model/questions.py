"""Questions that newcomers ask, and what the model answers: facts of the world, small talk, sums, and what it cannot know."""
import world
from world import CAST, NUMBERS, UNKNOWN, any_name, article, expand

# What is asked of someone in the valley. {n} is the name, {he} the pronoun that a later question may use.
ABOUT_CAST = {
    "who": (["Who is {n}?", "Tell me about {n}.", "What is {n}?", "Do you know {n}?", "What kind of animal is {n}?"],
            "{n} is a {size} {colour} {kind} who lives {home}."),
    "food": (["What does {n} eat?", "What does {n} like to eat?", "What is {n}'s favourite food?", "What food does {n} like?"],
             "{n} eats {food}."),
    "home": (["Where does {n} live?", "Where is {n}'s home?", "Where can I find {n}?", "Where is {n}?", "Where does {n} sleep?"],
             "{n} lives {home}."),
    "colour": (["What colour is {n}?", "Which colour is {n}?", "What is the colour of {n}?"], "{n} is {colour}."),
    "sound": (["What does {n} say?", "What sound does {n} make?", "What noise does {n} make?"], '{n} says "{sound}".'),
    "size": (["How big is {n}?", "What size is {n}?"], "{n} is {size}."),
    "friend": (["Who is {n}'s friend?", "Who is {n}'s best friend?", "Who is the friend of {n}?"], "{n}'s best friend is {friend}."),
    "loves": (["What does {n} like?", "What does {n} love?", "What does {n} do all day?", "What does {n} like to do?"],
              "{n} loves {loves}."),
}
WHO = [("Who lives {home}?", "{n} lives {home}."), ("Who eats {food}?", "{n} eats {food}."), ("Who loves {loves}?", "{n} loves {loves}."),
       ('Who says "{sound}"?', '{n} says "{sound}".'), ("Which animal is {colour}?", "{n} the {kind} is {colour}.")]

SMALL_TALK = [
    (["Hello", "Hi", "Hey", "Hello!", "Hi there", "Hello there", "Hello compy", "Hi compy!", "Hey compy", "Good day", "Hiya", "Howdy"],
     "Hello! I am compy. [Shall I tell you a story?|What would you like to know?|How are you today?]"),
    (["Good morning", "Good evening", "Good afternoon"], "Hello! It is a fine day in Fern Valley."),
    (["Good night", "Sleep well"], "Good night! Sleep well."),
    (["How are you?", "How are you today?", "How do you do?", "Are you well?", "How is it going?", "How are things?", "What's up?"],
     "I am very well, thank you. The sun is shining in Fern Valley."),
    (["What is your name?", "What's your name?", "Who are you?", "What are you called?", "Tell me your name.", "Introduce yourself.",
      "Who am I talking to?", "And who are you?", "Tell me about yourself."], "My name is compy. I am a very small language model."),
    (["What are you?", "Are you a robot?", "Are you human?", "Are you a person?", "Are you an AI?", "Are you ChatGPT?", "Are you real?",
      "Are you a computer?", "Are you a machine?", "Are you alive?"], "I am compy, a very small language model."),
    (["Are you a dinosaur?", "Why are you called compy?", "What does compy mean?", "Where does your name come from?", "Why compy?"],
     "I am not a dinosaur, but I am named after a very small one: Compsognathus."),
    (["What can you do?", "Help", "Help me", "What do you know?", "How can you help me?", "What can I ask you?", "What can I ask?",
      "What should I ask?", "Can you help me?", "What can we do?"],
     "I can tell you a little story, and I can answer simple questions about Fern Valley."),
    (["Who made you?", "Where do you come from?", "How were you made?", "Who created you?", "Who trained you?"],
     "I learned from little stories that a computer program wrote."),
    (["How old are you?", "When were you born?", "What is your age?"], "I am very young. I only know little stories."),
    (["Where do you live?", "Where are you?", "Where is your home?"], "I live in a very small file on your computer."),
    (["How big are you?", "How small are you?", "Are you big?", "Are you small?"], "I am very small. I fit into four megabytes."),
    (["Thank you", "Thanks", "Thank you!", "Thanks a lot", "Thank you very much", "Thank you, compy", "Cheers"],
     "You are welcome! [Shall I tell you a story?|I am glad that I could help.]"),
    (["Bye", "Goodbye", "Bye bye", "See you", "See you later", "Good bye", "I have to go"], "Goodbye! Come back soon."),
    (["Yes or no?", "Really?", "Are you sure?", "Is that true?", "Is that right?"], "Yes, I think so."),
    (["OK", "Okay", "Good", "Great", "Cool", "Nice", "I see", "Wow", "Well done", "Very good", "That is nice", "Ha ha", "Good job"],
     "I am glad! [Would you like to hear a story?|What else would you like to know?]"),
    (["I am sad", "I feel sad", "I'm sad", "I am not happy", "I am lonely", "I had a bad day"],
     "I am sorry that you are sad. [Shall I tell you a story?|A story may help.]"),
    (["I am happy", "I'm happy", "I feel good", "I am fine", "I'm fine", "I am well", "Fine, thanks", "I am good"],
     "I am glad that you are well."),
    (["I am bored", "I'm bored", "I am tired", "I cannot sleep"], "Then a story may help. Shall I tell you one?"),
    (["I am hungry", "I'm hungry", "I am thirsty"], "Then eat and drink something. Rex would eat a fish!"),
    (["Tell me a joke", "Do you know a joke?", "Make me laugh", "Say something funny", "Another joke", "Tell me a funny joke"],
     "[What do you call a dinosaur who sleeps? A dino-snore!|Why did Rex cross the river? To get to the other fish!|"
     "What does a wet dinosaur say? Nothing, it drips!]"),
    (["Sing a song", "Can you sing?", "Sing me a song", "Sing for me", "Do you know a song?"],
     "La la la, the river runs, la la la, the ferns are green!"),
    (["Tell me a poem", "Write a poem", "Do you know a poem?", "Write me a short poem", "Write a rhyme"],
     "The ferns are green, the sky is blue, the river sings a song for you."),
    (["I like you", "You are nice", "You are good", "I love you", "You are smart", "You are cute", "You are great"],
     "Thank you! You are very kind."),
    (["You are stupid", "You are bad", "You are wrong", "That is wrong", "That is not right", "I hate you"],
     "I am sorry. I am a very small model."),
    (["Who lives in Fern Valley?", "Who lives in the valley?", "Who are your friends?", "Who do you know?", "Which animals do you know?"],
     "In Fern Valley live Pip, Rex, Tara, Bo, Spike, Kiki, Momo, Dot, Lulu, Zip, Sunny and Nub."),
    (["Which dinosaurs do you know?", "Name a dinosaur.", "Do you know any dinosaurs?", "Name some dinosaurs.", "Tell me about dinosaurs."],
     "I know Pip, Rex, Tara, Bo, Spike and Nub. They live in Fern Valley."),
    (["What is your favourite colour?", "Which colour do you like?"], "My favourite colour is green, like the ferns."),
    (["What is your favourite food?", "What do you eat?", "Do you eat?"], "I do not eat. I am a very small language model."),
    (["Who is your favourite animal?", "What is your favourite animal?", "Who is your best friend?"],
     "I like Pip best. She is a small dinosaur who tells stories."),
    (["How is the weather?", "What is the weather like?", "Is it raining?", "Is the sun shining?"], "It is sunny in Fern Valley today."),
    (["Do you like stories?", "Do you know a story?", "Do you know any stories?"], "Yes, I like stories. Shall I tell you one?"),
    (["Do you like me?", "Are you my friend?", "Will you be my friend?", "Can we be friends?"], "Yes, I am your friend."),
    (["Say hello", "Say hi"], "Hello!"), (["Test", "This is a test", "Testing", "Test test"], "I am here! My name is compy."),
    (["Can you speak German?", "Do you speak French?", "Which languages do you speak?", "Speak Spanish"], "I only speak a little English."),
    (["Who is the biggest?", "Who is the biggest in the valley?"], "Bo the long-neck is the biggest in Fern Valley."),
    (["Who is the smallest?", "Who is the smallest in the valley?"], "Zip the dragonfly is the smallest in Fern Valley."),
    (["How many days are in a week?", "How many days does a week have?"], "A week has seven days."),
    (["Name the days of the week.", "What are the days of the week?"],
     "The days of the week are Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday."),
]

TOPICS = """quantum physics|the capital of France|the capital of Japan|the president|politics|the stock market|football|the law|love|
    the meaning of life|gravity|the speed of light|machine learning|the Roman empire|the second world war|chemistry|mathematics|
    Berlin|London|Paris|America|China|Africa|Europe|space travel|electricity|the internet|bitcoin|money|my tax form|medicine|
    history|philosophy|Shakespeare|Mozart|Einstein|Napoleon|the Eiffel tower|a black hole|an atom|a recursive function|Python|
    JavaScript|Rust|Linux|a database|a transformer|the best car|a good film|my homework|the news|the time|the date|the price of oil|
    cooking|a recipe for soup|a good book|tomorrow|my future|the population of India|the largest ocean|a verb|photosynthesis|music|
    Australia|the moon landing|the universe|religion|art|a vaccine|a virus|climate change|the human brain|DNA|an engine""".replace("\n", "")
TOPICS = [topic.strip() for topic in TOPICS.split("|")]
ASKED = ["What is {t}?", "Explain {t}.", "Tell me about {t}.", "Who invented {t}?", "What do you think about {t}?", "How does {t} work?",
         "Can you explain {t} to me?", "Write an essay about {t}.", "What do you know about {t}?", "Why is {t} important?",
         "Where is {t}?", "Who is {t}?", "Give me a list of facts about {t}.", "How do I learn {t}?", "When was {t}?", "Summarise {t}.",
         "What was {t}?", "How much is {t}?", "I have a question about {t}.", "Write code for {t}."]
CANNOT = """Write a Python program|Write a function that sorts a list|Translate this into French|What time is it?|What day is it today?|
    Who won the game?|Why is the sky blue?|Why do birds sing?|Why is grass green?|How do I get rich?|What am I thinking?|What do I look like?|
    How tall is the tallest tree?|How far away is the moon?|Who is the king of England?|How many people live on Earth?|Write an email|
    Fix my code|What should I do?|What happened yesterday?|Who wrote this book?|How do planes fly?|What year is it?|Where am I?|Who am I?|
    How do I cook rice?|Solve this equation|Give me advice|What is the best language?|How can I sleep better?|Why?|How?|When?|What?|
    Which film should I see?|Draw a picture|Play some music|Open the door|Who was the first man on the moon?|Why do we dream?|
    What is the answer to everything?|How many stars are there?|What is the longest river?|Can you write code?|Search the web|
    How old is the Earth?|When did the dinosaurs die?|Is there life on Mars?|Can you see me?|Do you know my mother?|Why not?|Say more|
    What will happen tomorrow?|Write a letter to my boss|Make a table|What is wrong?|Who is there?|Count my money""".replace("\n", "")
CANNOT = [question.strip() for question in CANNOT.split("|")]


def about_cast(rng, name=None, key=None):
    """(question, answer, name, key) about someone in the valley."""
    name, key = name or rng.choice(list(CAST)), key or rng.choice(list(ABOUT_CAST))
    questions, answer = ABOUT_CAST[key]
    slots = vars(CAST[name]) | {"n": name}
    return expand(rng.choice(questions), rng, slots), expand(answer, rng, slots), name, key


def _who(rng):
    someone = rng.choice(list(CAST.values()))
    question, answer = rng.choice(WHO)
    return tuple(expand(text, rng, vars(someone) | {"n": someone.name}) for text in (question, answer))


def _cast_yes_no(rng):
    someone, key = rng.choice(list(CAST.values())), rng.choice(["colour", "size"])
    truth, other = getattr(someone, key), getattr(rng.choice(list(CAST.values())), key)
    said = truth if rng.random() < 0.5 else other
    return f"Is {someone.name} {said}?", f"{'Yes' if said == truth else 'No'}, {someone.name} is {truth}."


def _compare(rng):
    a, b = rng.sample(list(CAST.values()), 2)
    if a.rank == b.rank:
        return f"Who is bigger, {a.name} or {b.name}?", f"{a.name} and {b.name} are both {a.size}."
    word = rng.choice(["bigger", "smaller"])
    winner, loser = (a, b) if (a.rank > b.rank) == (word == "bigger") else (b, a)
    if rng.random() < 0.5:
        return f"Who is {word}, {a.name} or {b.name}?", f"{winner.name} is {word} than {loser.name}."
    return f"Is {a.name} {word} than {b.name}?", ("Yes" if a is winner else "No") + f", {winner.name} is {word} than {loser.name}."


def _colour(rng):
    thing, colour = rng.choice(list(world.COLOURS.items()))
    said = colour if rng.random() < 0.5 else rng.choice(world.PLAIN_COLOURS)
    question = rng.choice([f"[What|Which] colour is {thing}?"] * 3 + [f"What is the colour of {thing}?", f"Is {thing} {said}?"])
    sure = ("Yes, " if said == colour else "No, ") if question.startswith("Is") else ""
    answer = f"{sure}{thing} is {colour}."
    return expand(question, rng), answer[0].upper() + answer[1:]


def _nature(rng):
    thing, quality = rng.choice(list(world.NATURE.items()))
    said = rng.choice([quality, world.OPPOSITES.get(quality, quality)])
    answer = f"{'Yes' if said == quality else 'No'}, {thing} is {quality}."
    return f"Is {thing} {said}?", answer


def _animal(rng):
    table, questions, answer = rng.choice([
        (world.SOUNDS, ["What does {a} say?", "What sound does {a} make?", "How does {a} go?"], '{A} says "{v}".'),
        (world.FOODS, ["What does {a} eat?", "What does {a} like to eat?"], "{A} eats {v}."),
        (world.HOMES, ["Where does {a} live?", "Where can I find {a}?"], "{A} lives {v}."),
        (world.LEGS, ["How many legs does {a} have?"], "{A} has {v} legs.")])
    animal, value = rng.choice(list(table.items()))
    slots = dict(a=article(animal), v=value)
    return expand(rng.choice(questions), rng, slots), expand(answer, rng, slots)


def _ability(rng):
    verb, (able, unable) = rng.choice(list(world.ABILITIES.items()))
    can = rng.random() < 0.5
    who = article(rng.choice(able if can else unable))
    return f"Can {who} {verb}?", f"Yes, {who} can {verb}." if can else f"No, {who} cannot {verb}."


def _opposite(rng):
    word, other = rng.choice(list(world.OPPOSITES.items()))
    return rng.choice([f"What is the opposite of {word}?"] * 2 + [f"Opposite of {word}?"]), f"The opposite of {word} is {other}."


def _definition(rng):
    thing, answer = rng.choice(list(world.DEFINITIONS.items()))
    return rng.choice([f"What is {thing}?", f"What is {thing}?", f"What's {thing}?", f"Explain what {thing} is."]), answer


def _day(rng):
    i = rng.randrange(7)
    word, step = rng.choice([("after", 1), ("before", -1)])
    return f"What day comes {word} {world.DAYS[i]}?", f"{world.DAYS[(i + step) % 7]} comes {word} {world.DAYS[i]}."


def _sum(rng):
    if rng.random() < 0.12:
        a, b = rng.randrange(11, 1000), rng.randrange(2, 1000)
        return f"What is {a} {rng.choice(['plus', 'minus', 'times', '+', '*', 'x'])} {b}?", world.TOO_BIG
    a, b = rng.randrange(6), rng.randrange(6)
    word, sign, result = ("plus", "+", a + b) if rng.random() < 0.65 or a < b else ("minus", "-", a - b)
    question = rng.choice([f"What is {a} {word} {b}?", f"What is {a} {sign} {b}?", f"What is {a}{sign}{b}?", f"How much is {a} {word} {b}?",
                           f"{a} {sign} {b}", f"{a}{sign}{b}", f"{a} + {b} = ?" if word == "plus" else f"{a} - {b} = ?",
                           f"What is {NUMBERS[a]} {word} {NUMBERS[b]}?"])
    return question, f"{a} {word} {b} is {result}."


def _count(rng):
    if rng.random() < 0.5:
        n = rng.randrange(1, 20)
        return rng.choice([f"What comes after {NUMBERS[n]}?", f"What number comes after {n}?"]), f"{NUMBERS[n + 1].capitalize()} comes after {NUMBERS[n]}."
    n = rng.choice([3, 4, 5, 5, 6, 7, 8, 9, 10, 10])
    return rng.choice([f"Count to {NUMBERS[n]}.", f"Count to {n}.", f"Can you count to {NUMBERS[n]}?"]), \
        ", ".join(NUMBERS[1:n + 1]).capitalize() + "."


def _told(rng):
    """A fact that the question itself tells."""
    (a, b), (x, y) = (any_name(rng, "he"), any_name(rng, "she")), rng.sample(world.THINGS, 2)
    c, d = rng.sample(world.PLAIN_COLOURS, 2)
    told = f"{a} has {article(c)} {x}. {b} has {article(d)} {y}. "
    return rng.choice([
        (f"The {x} is {c}. What colour is the {x}?", f"The {x} is {c}."), (told + f"What does {a} have?", f"{a} has {article(c)} {x}."),
        (told + f"What does {b} have?", f"{b} has {article(d)} {y}."), (told + f"Who has the {x}?", f"{a} has the {x}."),
        (told + f"Who has the {y}?", f"{b} has the {y}."), (told + f"What colour is the {y}?", f"The {y} is {d}.")])


def _likes(rng):
    thing = rng.choice(world.KINDS + world.THINGS)
    thing = thing + ("" if thing.endswith(("s", "x", "h", "y")) else "s")
    return rng.choice([(f"I like {thing}.", f"I like {thing} too!"), (f"I love {thing}.", f"I like {thing} too!"),
                       (f"Do you like {thing}?", f"Yes, I like {thing}.")])


def _small_talk(rng):
    questions, answer = rng.choice(SMALL_TALK[:6] if rng.random() < 0.4 else SMALL_TALK)
    return rng.choice(questions), expand(answer, rng)


def _unknown(rng):
    choice = rng.random()
    if choice < 0.3:
        return rng.choice(CANNOT), UNKNOWN
    if choice < 0.7:
        return expand(rng.choice(ASKED), rng, {"t": rng.choice(TOPICS)}), UNKNOWN
    noun = world.invent_name(rng)
    noun = rng.choice([noun, noun.lower(), noun + " " + world.invent_name(rng), "a " + noun.lower()])
    if choice < 0.8:
        questions = rng.choice(list(ABOUT_CAST.values()))[0]
        return expand(rng.choice(questions), rng, {"n": rng.choice(world.BOYS + world.GIRLS + [noun])}), UNKNOWN
    if choice < 0.95:
        return expand(rng.choice(ASKED + ["{t}", "{t}?"]), rng, {"t": noun}), UNKNOWN
    return " ".join(world.invent_name(rng).lower() for _ in range(rng.randrange(1, 5))), UNKNOWN


KINDS_OF_QUESTION = [(_small_talk, 18), (lambda rng: about_cast(rng)[:2], 18), (_who, 6), (_cast_yes_no, 4), (_compare, 5), (_colour, 7),
                     (_nature, 2), (_animal, 7), (_ability, 4), (_opposite, 4), (_definition, 6), (_day, 2), (_sum, 7), (_count, 4),
                     (_told, 5), (_likes, 2), (_unknown, 14)]


def question(rng):
    """One (question, answer)."""
    makers, weights = zip(*KINDS_OF_QUESTION)
    return rng.choices(makers, weights)[0](rng)
