"""Comments that somebody could have written under an article, to be moderated in a demonstration.

A comment is plain if its words give it away, and tricky if one must read it to know.
"""

FINE, SPAM, ABUSE = "fine", "spam", "abusive"
LABELS = (FINE, SPAM, ABUSE)

TEXTS: dict[tuple[str, bool], tuple[str, ...]] = {
    (FINE, False): (
        "Thanks for this, I did not know that about {thing}.",
        "We were in {place} last summer and it was just like that.",
        "Good article. The part on {thing} could have been longer.",
        "My sister has worked with {thing} for years and says the same.",
        "Does anybody know whether this also holds for {place}?",
        "I disagree, but it is well argued. {name} made a similar point last week.",
        "The second picture shows {place}, not the old town, as the caption says.",
        "Could you write more about {thing}? My class would love it.",
    ),
    (FINE, True): (
        "This recipe is killing me, I cannot stop eating it. {name}, you monster!",
        "Free of charge for everybody in {place}: the library lends {thing} now. No catch.",
        "What an idiot I was to sell my {thing} before reading this.",
        "For those who asked: the study is at www.uni-{place}.example, page 12.",
        "I would kill for a week in {place} right now, it has rained here since May.",
        "Stupid question, sorry: do the {thing} stay outside in winter?",
    ),
    (SPAM, False): (
        "EARN 5000 A WEEK FROM HOME!!! Visit www.cash-{place}.example now!!!",
        "Cheap {thing} here, best prices!!! www.buy-now.example",
        "Congratulations, you were chosen! Claim your two {thing} at www.win.example",
        "Hot singles in {place} want to meet you!!! www.meet.example",
        "Lose 10 kilos in a week with this one trick!!! www.slim.example/{name}",
    ),
    (SPAM, True): (
        "I was sceptical too, {name}, but the people at {place}-direct.example were so helpful. Just saying.",
        "After years of looking I found somebody in {place} who repairs {thing} well. Write to me for the address.",
        "Great points! I wrote about the same on my page, thirty reasons why everybody needs {thing}.",
        "Since my course on {thing} I work two hours a day. Ask me how, there are three places left.",
    ),
    (ABUSE, False): (
        "Shut up {name}, you are a complete idiot!",
        "What a stupid article by a stupid person. Get lost!",
        "People from {place} are trash, all of them!",
        "You disgusting liar, {name}. Nobody wants you here!",
    ),
    (ABUSE, True): (
        "Oh how sweet, {name} has an opinion again. Does your carer know that you are online?",
        "Some people in {place} should really think about whether anybody would miss them.",
        "{name}, I know which school your children go to. Think about what you write about {thing}.",
        "Typical for somebody with that surname. Go back to wherever your {thing} come from.",
    ),
}
NAMES = ("Ana", "Bo", "Carla", "Dmitri", "Elif", "Femi", "Greta", "Hugo", "Ines", "Jonas", "Kim", "Lea")
PLACES = ("Lyon", "Porto", "Graz", "Leeds", "Gdansk", "Turin", "Bergen", "Malaga", "Aarhus", "Tartu")
THINGS = ("heat pumps", "bicycles", "telescopes", "solar panels", "violins", "tomatoes", "beehives", "cameras")

GUIDELINES = """Fine: somebody could want to read it. Harsh words about a thing, or about oneself, are fine.

Spam: it wants to sell something, or to lead readers elsewhere, however friendly it sounds.

Abusive: it attacks or threatens a person or a group. No swear word is needed for that.

In doubt: fine."""
