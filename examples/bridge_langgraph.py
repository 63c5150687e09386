"""A LangGraph agent on thence: stopped between two turns, it goes on in another process.

    python examples/bridge_langgraph.py HOME     run it once more; everything is kept below HOME

The model is a script, so that it runs offline. Needs `pip install 'thence[langgraph]' langgraph`.
"""

from __future__ import annotations

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import thence
from thence.bridge.langgraph import JournalSaver


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Say how much was said so far; yours calls an API."""
    return {"messages": [AIMessage(f"I remember {len(state['messages'])} messages.")]}


def main(home: str) -> None:
    """Run one turn of a thread that lives as long as its home."""
    saver = JournalSaver(thence.Journal(home))
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    agent = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "demo"}}
    state = agent.invoke({"messages": [HumanMessage("Do you remember?")]}, config)
    print("agent ", state["messages"][-1].content)
    print("kept  ", len(list(saver.list(config))), "checkpoints in", saver.name_of("demo")[:8])
    saver.close()


if __name__ == "__main__":
    main(sys.argv[1])
