// Goes on to the viewer from a page of its own, so that the cookie comes along; once, for who has none is told so.
if (new URLSearchParams(location.search).get("again") === null) location.replace("/?again=1" + location.hash);
