"""Writes the documents that the demo model learns from: stories, chats and plain facts, all from one seed.

    python grammar.py            prints a few documents
    python grammar.py --check    writes many and verifies what every one of them must hold
"""
import argparse
import re

import questions
import world
from stories import PLOTS, Story
from world import CAST, UNKNOWN, any_name, article, expand

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
ANSWER_WEIGHT = 3  # a short answer holds one fact in few tokens, a story repeats itself
NAME_WEIGHT = 6  # who does what is the hard part of a story, and few of its tokens

SYSTEM = ["You are a helpful assistant.", "You are compy.", "You are compy, a very small language model.", "You are a friendly storyteller.",
          "You are a helpful, honest assistant. Answer as well as you can.", "Answer briefly.", "You are an AI assistant. Be kind and polite."]
SYSTEM_PARTS = ["You are a helpful, polite and honest assistant.", "Answer in simple English.", "If you do not know the answer, say so.",
                "Never make things up.", "Keep your answers short.", "Always be kind.", "You know Fern Valley well.", "Today is Monday.",
                "If a question does not make sense, explain why instead of answering something wrong.", "The user is a child.",
                "Always answer as helpfully as possible, while being safe.", "Do not share false information."]

ASK_STORY = ["Tell me a story{about}.", "Tell me a story{about}", "Please tell me a story{about}.", "Can you tell me a story{about}?",
             "Tell me a [short|little|nice|new|good] story{about}.", "I want to hear a story{about}.", "Write a story{about}.", "A story{about}, please.",
             "Write me a [short |little |]story{about}.", "Could you tell me a story{about}?", "Do you know a story{about}?",
             "Please write a [short |]story{about}."]
MORE = ["Another one, please.", "Tell me another story.", "Another story, please.", "One more!", "Tell me one more story.", "Again!", "More stories!"]
OFFERED = ["Yes", "Yes, please!", "Yes please", "Please do.", "Sure", "OK", "Of course!", "Yes, tell me a story."]


def noisy(rng, text):
    """The text as someone types it who is in a hurry."""
    chance = rng.random
    if chance() < 0.08:
        text = rng.choice(["Please tell me: ", "Hey, ", "compy, ", "Hello! ", "Tell me, ", "Can you tell me, ", "So, "]) + text[0].lower() + text[1:]
    if chance() < 0.3:
        text = text.replace("What is", "What's").replace("Who is", "Who's").replace("Where is", "Where's")
    if chance() < 0.3:
        text = text.replace("colour", "color").replace("favourite", "favorite")
    if chance() < 0.2:
        text = text.lower()
    if chance() < 0.2:
        text = text.rstrip(".?!")
    elif chance() < 0.06:
        text += rng.choice(["?", "!", ".", " ", "!!"])
    return text or "?"


def story_request(rng):
    """(request, story), where the request may name the hero, the kind of animal or the theme."""
    name = kind = plot = size = None
    choice = rng.random()
    if choice < 0.3:
        about = ""
    elif choice < 0.5:
        name = rng.choice(list(CAST))
        about = " about " + name + rng.choice(["", "", " the " + CAST[name].kind])
    elif choice < 0.75:
        kind = rng.choice(world.KINDS)
        adjective = rng.choice(["", "", "", "tiny", "small", "big", "little", "brave", "happy", "sad"])
        size = adjective if adjective in world.SIZES else "small" if adjective == "little" else None
        about = " about " + article(f"{adjective} {kind}".strip())
        if rng.random() < 0.3:
            name = any_name(rng, rng.choice(["he", "she"]))
            about += f" [called|named] {name}"
    elif choice < 0.83:
        name = rng.choice([n for n in CAST if CAST[n].kind in world.DINOSAURS])
        about = " about [a [small |little |big |brave |]dinosaur|dinosaurs]"
        if "small" in (about := expand(about, rng)) or "little" in about:
            name = "Pip"
    elif choice < 0.9:
        name = any_name(rng, rng.choice(["he", "she"]))
        about = " about " + name
    else:
        plot = rng.choice(list(PLOTS))
        about = " about " + PLOTS[plot]["about"]
    return expand(rng.choice(ASK_STORY), rng, {"about": expand(about, rng)}), Story(rng, name, kind, plot, size)


def _listen(rng, turns):
    """A story and what the listener asks about it."""
    request, story = story_request(rng)
    turns.append((request, story.text))
    if rng.random() < 0.7:
        turns.extend(rng.sample(story.qa, rng.choice([1, 2, 2, 3])))
    if rng.random() < 0.12:
        turns.append((rng.choice(MORE), Story(rng).text))


def _follow_up(rng, turns):
    """Several questions about someone, the later ones with a pronoun, or the same question about another."""
    asked, answer, name, key = questions.about_cast(rng)
    turns.append((asked, answer))
    if rng.random() < 0.6:
        key = rng.choice([k for k in questions.ABOUT_CAST if k not in (key, "who")])
        asked, answer, *_ = questions.about_cast(rng, name, key)
        he = CAST[name].he
        asked = asked.replace(name + "'s", {"he": "his", "she": "her"}[he]).replace("of " + name, "of " + {"he": "him", "she": "her"}[he])
        asked = re.sub(rf"\b(find|about) {name}\b", lambda m: m.group(1) + {"he": " him", "she": " her"}[he], asked).replace(name, he)
        turns.append((rng.choice([asked, asked, "And " + asked[0].lower() + asked[1:]]), answer))
    else:
        other = rng.choice([n for n in CAST if n != name])
        turns.append((expand(f"[And {other}?|What about {other}?|And what about {other}?]", rng), questions.about_cast(rng, other, key)[1]))


def _named(rng, turns):
    """The user's name, asked for later."""
    name = any_name(rng, rng.choice(["he", "she"]))
    said = expand(f"[My name is {name}.|I am {name}.|I'm {name}.|Hello, I am {name}.|Hi, my name is {name}!|Call me {name}.]", rng)
    turns.append((said, f"Hello, {name}! I am compy. [Shall I tell you a story?|What would you like to know?]"))
    turns.extend(questions.question(rng) for _ in range(rng.randrange(3)))
    turns.append((rng.choice(["What is my name?", "Do you remember my name?", "Who am I?", "What am I called?"]), f"Your name is {name}."))


def _offer(rng, turns):
    """A story that the model offers and the user wants."""
    offers = [entry for entry in questions.SMALL_TALK if "Shall I tell you" in entry[1]]
    asked, template = rng.choice(offers)
    answer = ""
    while "Shall I tell you" not in answer:
        answer = expand(template, rng)
    turns += [(rng.choice(asked), answer), (rng.choice(OFFERED), Story(rng).text)]


def chat(rng):
    """[(role, text), …], the assistant's turns as they should be."""
    turns = []
    if rng.random() < 0.15:
        turns.append(questions._small_talk(rng))
    part = rng.choices(["ask", "listen", "follow", "name", "offer"], [50, 24, 15, 7, 4])[0]
    if part == "ask":
        turns.extend(questions.question(rng) for _ in range(rng.randrange(1, 7)))
    else:
        dict(listen=_listen, follow=_follow_up, name=_named, offer=_offer)[part](rng, turns)
    if rng.random() < 0.2:
        turns.append(questions.question(rng))
    messages = []
    if rng.random() < 0.25:
        parts = rng.sample(SYSTEM_PARTS, rng.randrange(1, 6))
        messages.append(("system", rng.choice([rng.choice(SYSTEM), " ".join(parts)])))
    for asked, answer in turns:
        messages += [("user", noisy(rng, asked)), ("assistant", expand(answer, rng))]
    return messages


def facts(rng):
    """A few sentences about the world, one after the other."""
    sayings = []
    while len(sayings) < 4:
        answer = expand(questions.question(rng)[1], rng)
        if answer not in (UNKNOWN, world.TOO_BIG) and not re.match(r"(I|My|Yes|No|Hello|You|Good|Thank)\b", answer):
            sayings.append(answer)
    return " ".join(sayings)


def _told(story, end):
    """A story's parts: the names of those who act in it count more than its other words."""
    names = set(re.findall(r'(?<=[a-z,;] )[A-Z][a-z]+', story))
    pieces = re.split(r"( ?\b(?:" + "|".join(sorted(names)) + r")\b)", story) if names else [story]
    return [(piece, NAME_WEIGHT if piece.strip() in names else 1) for piece in pieces if piece] + [(end, 1)]


def document(rng):
    """[(text, weight), …]: the text's parts, with the weight that the model is to learn to say them with; 0 for the user's."""
    choice = rng.random()
    if choice < 0.15:
        return _told(Story(rng).text, END)
    if choice < 0.18:
        return [(facts(rng) + END, 1)]
    parts = []
    for role, text in chat(rng):
        parts.append((f"{START}{role}\n", 0))
        if role == "assistant" and len(text) > 200:
            parts += _told(text, STOP)
        else:
            parts.append((text + STOP, ANSWER_WEIGHT if role == "assistant" else 0))
        parts.append(("\n", 0))
    return parts


def check(count):
    """Raises AssertionError when a document breaks a promise of the grammar."""
    rng, seen = world.seeded(1), set()
    for _ in range(count):
        parts = document(rng)
        text = "".join(part for part, _ in parts)
        seen.add(text)
        assert text.isascii() and not re.search(r"[{}\[\]]|  |\ba [aeio]", text.split("user")[-1] if START in text else text), text
        if START in text:
            assert text.count(START) == text.count(STOP) and text.endswith(STOP + "\n"), text
        else:
            assert text.endswith(END) and text.count(END) == 1, text
    for plot in PLOTS:
        story = Story(rng, plot=plot)
        assert story.text.count(story.hero) >= 3 and story.slots["F"] in story.text and len(story.qa) >= 5, story.text
    assert UNKNOWN == questions._unknown(rng)[1]
    assert document(world.seeded(7)) == document(world.seeded(7))
    print(f"{count} documents, {len(seen)} different, {len(PLOTS)} plots: good")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.check:
        check(5000)
        return
    rng = world.seeded(options.seed)
    for _ in range(12):
        print("".join(part for part, _ in document(rng)), end="\n---\n")


if __name__ == "__main__":
    main()
